use rolling_kv::{ContextParams, Order, RollingKv};

use crate::child;
use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};

const CELLS: u32 = 8192;

/// 32 KiB a cell, from a narrow model: 256 MiB in all.
fn model() -> rolling_kv::Model {
    let shape = Shape {
        n_head: 64,
        n_head_kv: 64,
        n_layer: 1,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("llama.attention.key_length", 128)
        .u32("llama.attention.value_length", 128);
    tiny::finish(description, &backend(), shape.seed)
}

/// Only does something as the child of the test below.
#[test]
fn as_a_child_memory_is_measured() {
    if !child::is_one() {
        return;
    }
    let model = model();
    let measure = |spill: RollingKv| {
        let params = ContextParams::new(CELLS).n_ubatch(32).threads(1);
        let params = params.rolling_kv(spill.order(Order::Tiled).tile_cells(32));
        let (_, before) = child::taken();
        let mut context = model.context(&params).expect("the context is made");
        logits_after(&mut context, 0, &some_tokens(100, 1));
        let (_, during) = child::taken();
        let residency = context.residency();
        drop(context);
        let (_, after) = child::taken();
        (
            residency.device_bytes(),
            residency.host_bytes(),
            during - before,
            after.saturating_sub(before),
        )
    };
    measure(RollingKv::resident()); // what the first context sets up for all
    for window in [0, 1024, 4096, CELLS] {
        let (device, host, taken, left) = measure(RollingKv::window_cells(window));
        let announced = device + host;
        println!(
            "window {window}: {device} and {host} announced, {taken} taken, {left} left behind"
        );
        assert_eq!(announced, 32768 * u64::from(CELLS));
        assert_eq!(device, 32768 * u64::from(window));
        let apart = taken.abs_diff(announced);
        assert!(
            apart * 20 <= announced,
            "window {window}: {taken} were taken"
        );
        assert!(left * 20 <= announced, "window {window}: {left} were kept");
    }
}

/// A host pool took twice what was asked for, and the container was killed (vllm-project/vllm#53042): the process takes
/// what is announced, within a twentieth, and gives it back.
#[test]
fn the_process_takes_what_is_announced_and_gives_it_back() {
    let test = "the_process_takes_what_is_announced_and_gives_it_back";
    if !child::skipped_under_a_checker(test) {
        println!("{}", child::run("accounted::as_a_child_memory_is_measured"));
    }
}
