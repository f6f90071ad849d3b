//! A simulated device whose time is reckoned: no bit changes, and what schedules take is exact on any machine.

mod common;

use common::sim::{TILE, Twins, alone, bits, prompt_and_decode, shape};
use common::{logits_after, some_tokens};
use rolling_kv::{Backend, Context, ContextParams, Model, RollingKv, Schedule, TailEngine};

fn backend() -> Backend {
    let backend = common::backend();
    backend
        .simulate("mem=64MiB,link=200MB/s,latency=1us,time=reckoned,launch=5us,membw=5GB/s")
        .expect("the simulated device is added");
    backend
}

/// All of the tail goes over the link.
fn context<'model>(
    model: &'model Model,
    params: &ContextParams,
    spill: RollingKv,
) -> Context<'model> {
    common::sim::context(model, params, spill.tail_engine(TailEngine::Stream))
}

fn params() -> ContextParams {
    ContextParams::new(1024).n_ubatch(128).threads(1)
}

/// Reckoned time and copied bytes of one decode step, once the ring has run.
fn step(context: &mut Context<'_>) -> (u64, u64) {
    logits_after(context, 0, &some_tokens(700, 1));
    logits_after(context, 0, &some_tokens(2, 2));
    let before = context.staging().expect("the device stages");
    logits_after(context, 0, &some_tokens(1, 3));
    let after = context.staging().expect("the device stages");
    (
        after.device_ns - before.device_ns,
        after.bytes - before.bytes,
    )
}

#[test]
fn no_bit_depends_on_how_time_passes() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    for threads in [1, 2] {
        let params = params().threads(threads);
        let run = |context: &mut Context<'_>| prompt_and_decode(context, 0, 300);
        let expected = twins.expected(&params, run);
        for schedule in [Schedule::Ring, Schedule::Op] {
            for (window, depth) in [(0, 1), (64, 2), (96, 8)] {
                let spill = RollingKv::window_cells(window)
                    .schedule(schedule)
                    .ring_depth(depth)
                    .copy_cells(TILE * depth);
                let mut spilled = context(&twins.device, &params, spill);
                assert!(run(&mut spilled) == expected, "{schedule:?} {window}");
            }
        }
    }
}

/// With a tail that takes longer to copy than all layers to compute: a step of the ring takes what the copies take, and one of
/// copies that wait for their layer takes both.
#[test]
fn the_ring_takes_the_longer_of_the_two_and_the_op_schedule_their_sum() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(4));
    let run = |spill| step(&mut context(&twins.device, &params(), spill));
    let (compute, none) = run(RollingKv::resident());
    assert_eq!(none, 0);
    let spill = |schedule| {
        RollingKv::window_cells(32)
            .schedule(schedule)
            .copy_cells(224)
    };
    let (ring, bytes) = run(spill(Schedule::Ring).ring_depth(6));
    let (op, op_bytes) = run(spill(Schedule::Op).ring_depth(1));
    let copy = op_bytes * 5; // ns at 200 MB/s
    assert!(bytes > 0 && copy > compute, "{copy} {compute}");
    let within = |found: u64, expected: u64, share: f64| {
        (found as f64 / expected as f64 - 1.0).abs() <= share
    };
    assert!(within(ring, copy, 0.05), "ring {ring}, copy {copy}");
    assert!(
        within(op, copy + compute, 0.05),
        "op {op}, copy {copy}, compute {compute}"
    );
}

/// A tail that takes less than computing costs nothing.
#[test]
fn a_short_tail_is_free() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(4));
    let run = |spill| step(&mut context(&twins.device, &params(), spill));
    let (compute, _) = run(RollingKv::resident());
    let (ring, bytes) = run(RollingKv::window_cells(672).copy_cells(32).ring_depth(8));
    assert!(bytes > 0);
    assert!(
        ring <= compute + compute / 50,
        "ring {ring}, compute {compute}"
    );
}

#[test]
fn the_same_run_takes_the_same_time() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(3));
    let run = || {
        let spill = RollingKv::window_cells(64).copy_cells(64).ring_depth(4);
        step(&mut context(&twins.device, &params(), spill))
    };
    let first = run();
    assert!((0..5).all(|_| run() == first), "{first:?}");
}

/// Half of the cache spilled: a prompt's ubatches take what computing or copying takes, whichever is longer.
#[test]
fn a_prompt_takes_the_longer_of_computing_and_copying() {
    let _alone = alone();
    let twins = Twins::new(&backend(), &shape(4));
    let prompt = |spill| {
        let mut context = context(&twins.device, &params(), spill);
        let found = bits(&logits_after(&mut context, 0, &some_tokens(1000, 1)));
        let staging = context.staging().expect("the device stages");
        (found, staging.device_ns, staging.bytes)
    };
    let (expected, compute, _) = prompt(RollingKv::resident());
    let (found, time, bytes) = prompt(RollingKv::window_cells(512).copy_cells(128).ring_depth(8));
    assert!(found == expected);
    let longest = compute.max(bytes * 5);
    assert!(
        time as f64 <= 1.1 * longest as f64,
        "{time}, compute {compute}, copy {}",
        bytes * 5
    );
}
