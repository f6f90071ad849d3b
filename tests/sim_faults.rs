//! Control arms of the staging ring: each protection, taken out, must show in the logits. In a program of its own, because a
//! fault holds for the whole process.

mod common;

use common::sim::{
    Twins, alone, bits, context, few_tokens_at_once, in_fragments, prompt_and_decode, shape,
    two_in_turns,
};
use common::{logits_after, some_tokens};
use rolling_kv::{Backend, Context, ContextParams, Fault, Model, RollingKv, TailEngine};

/// Copies are slow, so that one which comes too early or too late does.
fn backend() -> Backend {
    let backend = common::backend();
    backend
        .simulate("mem=64MiB,link=1GB/s,latency=50us,delay=100us,seed=3")
        .expect("the simulated device is added");
    backend
}

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

fn spilled<'model>(model: &'model Model, params: &ContextParams, depth: u32) -> Context<'model> {
    let spill = RollingKv::window_cells(64)
        .ring_depth(depth)
        .tail_engine(TailEngine::Stream);
    context(model, params, spill)
}

/// A prompt, a few tokens, a state restored, and a few tokens more.
fn restored(context: &mut Context<'_>) -> Vec<u32> {
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
#[track_caller]
fn shows(fault: Fault, run: impl Fn() -> Vec<u32>) {
    let _alone = alone();
    let expected = run();
    let seen = (0..10).any(|_| {
        let guard = fault.inject();
        let found = run();
        drop(guard);
        found != expected
    });
    assert!(run() == expected, "{fault:?} outlives its guard");
    assert!(seen, "{fault:?} does not show");
}

fn shows_after_a_restore(fault: Fault, depth: u32) {
    let twins = Twins::new(&backend(), &shape(3));
    shows(fault, || {
        restored(&mut spilled(&twins.device, &params(), depth))
    });
}

/// Half of the tail goes over the link, the host attends to the other half.
fn shows_beside_the_link(fault: Fault) {
    let twins = Twins::new(&backend(), &shape(3));
    for engine in [TailEngine::Host, TailEngine::Hybrid] {
        shows(fault, || {
            let spill = RollingKv::window_cells(64)
                .ring_depth(4)
                .tail_engine(engine);
            prompt_and_decode(&mut context(&twins.device, &params(), spill), 0, 250)
        });
    }
}

#[test]
fn a_host_that_begins_before_its_query_is_there_shows() {
    shows_beside_the_link(Fault::HostEarly);
}

#[test]
fn partials_of_the_host_that_nobody_waited_for_show() {
    shows_beside_the_link(Fault::HostUnwaited);
}

#[test]
fn a_tile_copied_before_it_was_written_shows() {
    shows_after_a_restore(Fault::RingStale, 8);
}

#[test]
fn a_slot_filled_while_it_is_read_shows() {
    shows_after_a_restore(Fault::RingReuse, 1);
}

#[test]
fn a_change_between_two_steps_that_is_not_noticed_shows() {
    shows_after_a_restore(Fault::RingGeneration, 4);
}

#[test]
fn tiles_of_one_part_of_a_graph_taken_for_those_of_another_show() {
    let model = in_fragments(&backend(), &shape(3));
    shows(Fault::RingIdentity, || {
        prompt_and_decode(&mut spilled(&model, &params(), 4), 0, 250)
    });
}

#[test]
fn slots_that_two_contexts_share_show() {
    let twins = Twins::new(&backend(), &shape(3));
    shows(Fault::RingOwner, || {
        let mut left = spilled(&twins.device, &params(), 4);
        let mut right = spilled(&twins.device, &params(), 4);
        two_in_turns(&mut left, &mut right, 250).concat()
    });
}

#[test]
fn rows_of_a_few_tokens_copied_before_they_were_written_show() {
    let twins = Twins::new(&backend(), &shape(3));
    shows(Fault::RingStale, || {
        few_tokens_at_once(&mut spilled(&twins.device, &params(), 8))
    });
}

#[test]
fn rows_of_a_prompts_second_half_copied_before_they_were_written_show() {
    let twins = Twins::new(&backend(), &shape(3));
    shows(Fault::RingStale, || {
        let mut context = spilled(&twins.device, &params(), 8);
        bits(&logits_after(&mut context, 0, &some_tokens(200, 1)))
    });
}

/// Whether a fault that holds from the middle of a run on shows in what follows.
#[track_caller]
fn shows_midway(
    fault: Fault,
    params: &ContextParams,
    start: impl Fn(&mut Context<'_>),
    rest: impl Fn(&mut Context<'_>) -> Vec<u32>,
) {
    let twins = Twins::new(&backend(), &shape(3));
    let _alone = alone();
    let run = |faulty: bool| {
        let mut context = spilled(&twins.device, params, 4);
        start(&mut context);
        let _guard = faulty.then(|| fault.inject());
        rest(&mut context)
    };
    let expected = run(false);
    assert!(run(true) != expected, "{fault:?} does not show");
    assert!(run(false) == expected, "{fault:?} outlives its guard");
}

#[test]
fn the_end_of_a_stream_that_a_step_does_not_renew_shows() {
    let params = ContextParams::new(3 * 512)
        .n_ubatch(64)
        .threads(1)
        .n_seq_max(3);
    let start = |context: &mut Context<'_>| {
        for (seq, count) in [(0, 300), (1, 20), (2, 90)] {
            logits_after(context, seq, &some_tokens(count, 5));
        }
    };
    shows_midway(Fault::StepFrozen, &params, start, |context| {
        let mut logits = Vec::new();
        for token in some_tokens(8, 9) {
            for seq in 0..3 {
                logits.extend(logits_after(context, seq, &[token]));
            }
        }
        bits(&logits)
    });
}

/// The graph of a decoded token is used again while the cells in use grow within one shape.
#[test]
fn an_end_that_stays_while_a_graph_is_used_again_shows() {
    let start = |context: &mut Context<'_>| {
        logits_after(context, 0, &some_tokens(100, 1));
    };
    shows_midway(Fault::StepFrozen, &params(), start, |context| {
        let mut logits = Vec::new();
        for token in some_tokens(20, 2) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        bits(&logits)
    });
}
