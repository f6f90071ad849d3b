//! Random delays in every queue of the simulated device: whatever they are, the bits are the same.

mod common;

use common::sim::{Twins, context, prompt_and_decode, shape};
use rolling_kv::{ContextParams, RollingKv, Schedule, TailEngine};

/// Contexts that are made. Each has queues with seeds of their own, so these are as many seeds.
fn seeds() -> u64 {
    let asked = std::env::var("ROLLING_KV_TEST_SIM_SEEDS").ok();
    asked
        .map(|text| text.parse().expect("ROLLING_KV_TEST_SIM_SEEDS is a number"))
        .unwrap_or(common::fewer_if_slow(1000) as u64)
}

#[test]
fn a_thousand_seeds_of_delays_give_the_same_bits() {
    let backend = common::backend();
    backend
        .simulate("mem=64MiB,link=8GB/s,latency=1us,delay=40us,seed=11")
        .expect("the simulated device is added");
    let twins = Twins::new(&backend, &shape(2));
    let params = ContextParams::new(256).n_ubatch(64).threads(1);
    let run = |context: &mut rolling_kv::Context<'_>| prompt_and_decode(context, 0, 110);
    let expected = twins.expected(&params, run);
    for seed in 0..seeds() {
        let schedule = if seed % 5 == 0 {
            Schedule::Op
        } else {
            Schedule::Ring
        };
        let engine = [TailEngine::Hybrid, TailEngine::Stream, TailEngine::Host][seed as usize % 3];
        let spill = RollingKv::window_cells(32)
            .schedule(schedule)
            .tail_engine(engine)
            .ring_depth(1 + seed as u32 % 4);
        let mut spilled = context(&twins.device, &params, spill);
        assert!(run(&mut spilled) == expected, "context {seed}, {engine:?}");
        let host_tiles = spilled.residency().totals().tiles_host;
        assert_eq!(host_tiles > 0, engine != TailEngine::Stream, "{engine:?}");
    }
}
