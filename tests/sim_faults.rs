//! Control arms of the staging ring: each protection, taken out, must show in the logits. In a program of its own, because a
//! fault holds for the whole process.

mod common;

use std::sync::{Mutex, PoisonError};

use common::sim::{Twins, bits, context, shape};
use common::{logits_after, some_tokens};
use rolling_kv::{Backend, Context, ContextParams, Fault, RollingKv};

/// One test at a time: the faults of one would be seen by the others.
static ALONE: Mutex<()> = Mutex::new(());

/// Copies are slow, so that one which comes too early or too late does.
fn backend() -> Backend {
    let backend = common::backend();
    backend
        .simulate("mem=64MiB,link=1GB/s,latency=50us,delay=100us,seed=3")
        .expect("the simulated device is added");
    backend
}

fn spilled(twins: &Twins, depth: u32) -> Context<'_> {
    let params = ContextParams::new(512).n_ubatch(64).threads(1);
    let spill = RollingKv::window_cells(64).ring_depth(depth);
    context(&twins.device, &params, spill)
}

/// A prompt, a few tokens, a state restored, and a few tokens more.
fn run(context: &mut Context<'_>) -> Vec<u32> {
    let mut logits = logits_after(context, 0, &some_tokens(200, 1));
    let saved = context.save_sequence(0).expect("the state is saved");
    for token in some_tokens(6, 2) {
        logits.extend(logits_after(context, 0, &[token]));
    }
    context.memory().clear().expect("the cache is cleared");
    logits.extend(logits_after(context, 0, &some_tokens(200, 3)));
    context.memory().clear().expect("the cache is cleared");
    context
        .restore_sequence(&saved, 0)
        .expect("the state is restored");
    for token in some_tokens(6, 4) {
        logits.extend(logits_after(context, 0, &[token]));
    }
    bits(&logits)
}

/// Whether the fault shows in one of a few tries; one is a race that a machine may win by chance.
fn shows(twins: &Twins, fault: Fault, depth: u32) -> bool {
    let expected = run(&mut spilled(twins, depth));
    let seen = (0..10).any(|_| {
        let guard = fault.inject();
        let found = run(&mut spilled(twins, depth));
        drop(guard);
        found != expected
    });
    assert!(
        run(&mut spilled(twins, depth)) == expected,
        "{fault:?} outlives its guard"
    );
    seen
}

#[test]
fn a_tile_copied_before_it_was_written_shows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(shows(
        &Twins::new(&backend(), &shape(3)),
        Fault::RingStale,
        8
    ));
}

#[test]
fn a_slot_filled_while_it_is_read_shows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(shows(
        &Twins::new(&backend(), &shape(3)),
        Fault::RingReuse,
        1
    ));
}

#[test]
fn a_change_between_two_steps_that_is_not_noticed_shows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(shows(
        &Twins::new(&backend(), &shape(3)),
        Fault::RingGeneration,
        4
    ));
}
