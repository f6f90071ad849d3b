use rolling_kv::{Context, ContextParams, RollingKv, ShiftPath, TailEngine};

use crate::backend;
use crate::common::sim::{
    Twins, bits, context, few_tokens_at_once, in_fragments, prompt_and_decode, shape,
    streams_of_different_lengths, two_in_turns, with_layers,
};
use crate::common::{logits_after, some_tokens};

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

/// Those that differ in who attends to the tail.
const ENGINES: [TailEngine; 3] = [TailEngine::Stream, TailEngine::Host, TailEngine::Hybrid];

fn spill() -> RollingKv {
    RollingKv::window_cells(64).ring_depth(4)
}

/// Whoever attends to the tail has done so.
#[track_caller]
fn engaged(context: &mut Context<'_>, engine: TailEngine) {
    let staging = context.staging().expect("the device stages");
    assert!(staging.bytes > 0, "{engine:?}: {staging:?}");
    assert_eq!(
        staging.host_steps > 0,
        engine != TailEngine::Stream,
        "{engine:?}: {staging:?}"
    );
    let totals = context.residency().totals();
    assert_eq!(
        totals.tiles_host > 0,
        engine != TailEngine::Stream,
        "{engine:?}: {totals:?}"
    );
    assert!(
        totals.tiles_host < totals.tiles_tail,
        "{engine:?}: {totals:?}"
    );
}

/// The run on the device with a window equals the run on the CPU without one, whoever attends to the tail.
fn same(twins: &Twins, params: &ContextParams, run: impl Fn(&mut Context<'_>) -> Vec<u32>) {
    let expected = twins.expected(params, &run);
    for engine in ENGINES {
        let mut spilled = context(&twins.device, params, spill().tail_engine(engine));
        assert!(run(&mut spilled) == expected, "{engine:?}");
        engaged(&mut spilled, engine);
    }
}

#[test]
fn a_state_restored_between_two_steps_is_seen_by_tiles_that_were_copied_ahead() {
    let twins = Twins::new(&backend(), &shape(3));
    same(&twins, &params(), |context| {
        let mut logits = logits_after(context, 0, &some_tokens(200, 1));
        let saved = context.save_sequence(0).expect("the state is saved");
        context.memory().clear().expect("the cache is cleared");
        logits.extend(logits_after(context, 0, &some_tokens(200, 2)));
        context.memory().clear().expect("the cache is cleared");
        context
            .restore_sequence(&saved, 0)
            .expect("the state is restored");
        for token in some_tokens(5, 3) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        bits(&logits)
    });
}

#[test]
fn cells_removed_and_written_again_are_read_as_they_are() {
    let twins = Twins::new(&backend(), &shape(3));
    same(&twins, &params(), |context| {
        let mut logits = logits_after(context, 0, &some_tokens(250, 1));
        context
            .memory()
            .remove(0, 100..)
            .expect("the cells are removed");
        for token in some_tokens(40, 3) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        bits(&logits)
    });
}

#[test]
fn batches_of_a_few_tokens_run_as_they_do_on_the_cpu() {
    let twins = Twins::new(&backend(), &shape(3));
    same(&twins, &params(), few_tokens_at_once);
}

#[test]
fn streams_of_very_different_lengths_do_not_disturb_each_other() {
    let twins = Twins::new(&backend(), &shape(3));
    let params = ContextParams::new(3 * 512)
        .n_ubatch(64)
        .threads(1)
        .n_seq_max(3);
    same(&twins, &params, streams_of_different_lengths);
}

#[test]
fn two_contexts_in_turns_on_one_device_do_not_disturb_each_other() {
    let twins = Twins::new(&backend(), &shape(3));
    let expected = twins.expected(&params(), |context| prompt_and_decode(context, 0, 250));
    for engine in ENGINES {
        let mut left = context(&twins.device, &params(), spill().tail_engine(engine));
        let right = RollingKv::window_cells(0).ring_depth(2).tail_engine(engine);
        let mut right = context(&twins.device, &params(), right);
        let found = two_in_turns(&mut left, &mut right, 250);
        assert!(found[0] == expected && found[1] == expected, "{engine:?}");
    }
}

#[test]
fn layers_on_the_cpu_between_layers_on_the_device_change_nothing() {
    let backend = backend();
    let shape = shape(5);
    let cpu = Twins::new(&backend, &shape).cpu;
    let expected = prompt_and_decode(&mut context(&cpu, &params(), RollingKv::resident()), 0, 250);
    for layers in [0, 1, 2, 4] {
        let model = with_layers(&backend, &shape, layers);
        for engine in ENGINES {
            let mut spilled = context(&model, &params(), spill().tail_engine(engine));
            assert!(
                prompt_and_decode(&mut spilled, 0, 250) == expected,
                "{layers} layers on the device, {engine:?}"
            );
        }
    }
}

/// The feed-forward weights lie on the CPU, so a pass comes to the device as several graphs.
#[test]
fn a_pass_that_is_cut_into_several_graphs_changes_nothing() {
    let shape = shape(4);
    let twins = Twins::new(&backend(), &shape);
    let expected = twins.expected(&params(), |context| prompt_and_decode(context, 0, 250));
    let model = in_fragments(&backend(), &shape);
    for engine in ENGINES {
        let mut whole = context(&twins.device, &params(), spill().tail_engine(engine));
        let mut cut = context(&model, &params(), spill().tail_engine(engine));
        assert!(
            prompt_and_decode(&mut whole, 0, 250) == expected,
            "{engine:?}"
        );
        assert!(
            prompt_and_decode(&mut cut, 0, 250) == expected,
            "{engine:?}"
        );
        let steps = |context: &mut Context<'_>| context.staging().expect("the device stages").steps;
        assert_eq!(steps(&mut cut), 4 * steps(&mut whole), "{engine:?}");
    }
}

/// The last copy of a layer has as many cells as the graph does, and that number grows by 256. With slots that are long enough from
/// before, the ring stays; rows that were copied ahead for
/// the step before must be where the next one looks for them.
#[test]
fn regression_a_copy_that_grows_between_two_steps_is_read_as_it_lies() {
    let twins = Twins::new(&backend(), &shape(3));
    let run = |context: &mut Context<'_>| {
        let mut logits = logits_after(context, 0, &some_tokens(300, 4));
        context.memory().clear().expect("the cache is cleared");
        logits.extend(logits_after(context, 0, &some_tokens(250, 1)));
        for token in some_tokens(12, 2) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        bits(&logits)
    };
    let expected = twins.expected(&params(), run);
    for window in [0, 64] {
        for depth in [1, 2, 8] {
            let spill = RollingKv::window_cells(window)
                .ring_depth(depth)
                .copy_cells(512)
                .tail_engine(TailEngine::Stream);
            let mut spilled = context(&twins.device, &params(), spill);
            assert!(
                run(&mut spilled) == expected,
                "window {window}, depth {depth}"
            );
            let staging = spilled.staging().expect("the device stages");
            assert!(staging.tiles_kept > 0, "{staging:?}");
        }
    }
}

/// K in the tail is turned by the host, or by the device over its link; tiles that were copied ahead hold what was there before.
#[test]
fn regression_keys_that_a_shift_turned_are_read_as_they_are() {
    let twins = Twins::new(&backend(), &shape(3));
    let run = |context: &mut Context<'_>| {
        let mut logits = logits_after(context, 0, &some_tokens(250, 1));
        for token in some_tokens(3, 2) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        let mut memory = context.memory();
        memory.shift(0, 50.., 40).expect("the positions move");
        for token in some_tokens(4, 3) {
            logits.extend(logits_after(context, 0, &[token]));
        }
        bits(&logits)
    };
    let expected = twins.expected(&params(), run);
    for window in [0, 96, 256] {
        for (depth, path, engine) in [
            (1, ShiftPath::Host, TailEngine::Hybrid),
            (4, ShiftPath::Device, TailEngine::Host),
            (64, ShiftPath::Host, TailEngine::Stream),
            (64, ShiftPath::Device, TailEngine::Stream),
            (64, ShiftPath::Device, TailEngine::Hybrid),
        ] {
            let spill = RollingKv::window_cells(window)
                .ring_depth(depth)
                .tail_engine(engine)
                .shift_path(path);
            let mut spilled = context(&twins.device, &params(), spill);
            let what = format!("window {window}, depth {depth}, {path:?}");
            assert!(run(&mut spilled) == expected, "{what}");
            let totals = spilled.residency().totals();
            let host = path == ShiftPath::Host && window < 253;
            let device = path == ShiftPath::Device && window < 253;
            assert_eq!(totals.moved_window > 0, window > 0, "{what}: {totals:?}");
            assert_eq!(totals.moved_host > 0, host, "{what}: {totals:?}");
            assert_eq!(totals.moved_device > 0, device, "{what}: {totals:?}");
        }
    }
}
