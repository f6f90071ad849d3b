//! Tokens that move to other positions while some of their cells lie in the tail.

use rolling_kv::{
    Backend, Context, ContextParams, KvType, Model, Order, RollingKv, SequenceError, Shift,
    ShiftPath, Token,
};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};
use crate::twins::{Twins, assert_same_bits, resident, spilled, tiled};

pub fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

pub fn heads_of(head_dim: u32, n_layer: u32, backend: &Backend) -> Model {
    let shape = Shape {
        n_embd: 2 * head_dim,
        n_layer,
        ..Shape::default()
    };
    tiny::model_of(backend, &shape)
}

fn next_few(twins: &mut Twins<'_>, what: &str) {
    for token in some_tokens(3, 5) {
        twins.append(what, 0, &[token]);
    }
}

/// Cells whose K was turned: in windows, and in tails.
fn moved(context: &Context<'_>) -> (u64, u64) {
    let totals = context.residency().totals();
    (totals.moved_window, totals.moved_host + totals.moved_device)
}

/// Ranges wholly in the tail, wholly in the window, and across the border at 128; then what a context shift does.
#[test]
fn a_move_in_either_part_and_across_the_border_keeps_the_bits() {
    let backend = backend();
    for (head_dim, kv) in [
        (32, KvType::F16),
        (64, KvType::F16),
        (64, KvType::Bf16),
        (64, KvType::Q8_0),
        (32, KvType::Q8_0),
        (64, KvType::Q4_0),
        (96, KvType::Q5_1),
    ] {
        let model = heads_of(head_dim, 2, &backend);
        let params = params().cache_types(kv, kv);
        for window in [0, 32, 128, 256] {
            let what = format!("heads of {head_dim}, {kv}, window {window}");
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(&what, 0, &some_tokens(300, 1));
            for (range, delta) in [(200..300, 40), (0..100, 7), (100..260, -3)] {
                twins.both(&what, |context| {
                    context.memory().shift(0, range.clone(), delta).is_ok()
                });
                next_few(&mut twins, &what);
            }
            twins.both(&what, |context| {
                let mut memory = context.memory();
                memory.remove(0, 4..132).expect("the cells are removed");
                memory.shift(0, 132.., -128).expect("the rest moves up");
            });
            next_few(&mut twins, &what);
            twins.assert_spilled(&what);
            let (in_window, in_tail) = moved(&twins.spilled);
            assert_eq!(
                (in_window > 0, in_tail > 0),
                (window > 0, window < 256 || in_tail > 0),
                "{what}"
            );
            assert_eq!(
                in_window + in_tail,
                moved(&twins.resident).0,
                "{what}: the same cells move wherever they lie"
            );
        }
    }
}

#[test]
fn a_division_and_the_moves_of_self_extend_keep_the_bits() {
    let model = heads_of(64, 2, &backend());
    for kv in [KvType::F16, KvType::Q8_0] {
        let params = params().cache_types(kv, kv);
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(96));
        twins.append("the prompt", 0, &some_tokens(256, 1));
        for group in 0..3 {
            // Four neighbours of a group of 64 get one position, and what follows moves up.
            let from = group * 16;
            twins.both("self-extend", |context| {
                let mut memory = context.memory();
                memory.divide(0, from..from + 64, 4).expect("divided");
                let end = *memory.positions(0).unwrap().unwrap().end();
                assert!(end > from + 64);
                let delta = (from + 64) / 4 - (from + 64);
                memory.shift(0, from + 64.., delta).expect("moved up");
            });
            next_few(&mut twins, "after self-extend");
        }
        twins.assert_spilled("self-extend");
    }
}

#[test]
fn moves_before_one_step_add_up() {
    let model = heads_of(64, 2, &backend());
    let make = || {
        let mut context = spilled(&model, &params(), RollingKv::window_cells(96));
        context.append(0, &some_tokens(300, 1)).expect("it fits");
        context
    };
    let mut once = make();
    once.memory().shift(0, 50.., 5).unwrap();
    let mut twice = make();
    twice.memory().shift(0, 50.., 8).unwrap();
    twice.memory().remove(0, 10..20).unwrap();
    twice.memory().shift(0, 58.., -3).unwrap();
    once.memory().remove(0, 10..20).unwrap();
    let token = [Token(9)];
    let [once, twice] = [&mut once, &mut twice].map(|context| {
        let logits = logits_after(context, 0, &token);
        (logits, moved(context))
    });
    assert_same_bits(&once.0, &twice.0, "two moves");
    assert_eq!(once.1, twice.1, "each cell is turned once");
}

#[test]
fn streams_and_shared_tokens_move_as_in_the_resident_cache() {
    let model = heads_of(64, 2, &backend());
    for unified in [false, true] {
        let mut params = ContextParams::new(1024)
            .n_ubatch(64)
            .threads(1)
            .n_seq_max(2);
        if unified {
            params = params.kv_unified();
        }
        let what = format!("unified {unified}");
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(96));
        twins.append(&what, 0, &some_tokens(200, 1));
        twins.both(&what, |context| {
            context.memory().copy(0, 1, ..).expect("copied");
        });
        twins.append(&what, 1, &some_tokens(90, 2));
        twins.append(&what, 0, &some_tokens(20, 3));
        twins.both(&what, |context| {
            let mut memory = context.memory();
            memory.remove(1, 20..70).expect("removed");
            memory.shift(1, 70.., -50).expect("moved");
        });
        for seq in [0, 1] {
            twins.append(&what, seq, &some_tokens(4, 4));
        }
        twins.assert_spilled(&what);
    }
}

/// All layers of this model slide, so that its other cache has none; llama.cpp looked for their keys.
#[test]
fn regression_a_cache_without_layers_has_nothing_to_turn() {
    let shape = Shape {
        architecture: "gemma3",
        n_layer: 1,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("gemma3.attention.sliding_window", 32)
        .u32("gemma3.attention.key_length", 32)
        .u32("gemma3.attention.value_length", 32);
    let model = tiny::finish(description, &backend(), 3);
    let mut context = model.context(&params().swa_full()).expect("it is made");
    context.append(0, &some_tokens(100, 1)).expect("it fits");
    context.memory().shift(0, 50.., 3).expect("moved");
    context.append(0, &some_tokens(1, 2)).expect("it goes on");
}

#[test]
fn a_guarded_window_refuses_to_move_and_changes_nothing() {
    let model = tiny::model(&backend());
    let guarded = |cells| RollingKv::window_cells(cells).shift(Shift::Guard);
    for window in [0, 64] {
        let mut context = spilled(&model, &params(), guarded(window));
        logits_after(&mut context, 0, &some_tokens(100, 1));
        assert!(!context.memory().can_shift());
        for error in [
            context.memory().shift(0, 50.., -10).expect_err("refused"),
            context.memory().divide(0, 50.., 2).expect_err("refused"),
        ] {
            let SequenceError::CannotShift { reason } = &error else {
                panic!("{error}");
            };
            assert!(reason.contains("--kv-shift is guard"), "{reason}");
        }
        assert_eq!(context.positions(0).unwrap(), Some(0..=99));
        let mut untouched = spilled(&model, &params(), guarded(window));
        logits_after(&mut untouched, 0, &some_tokens(100, 1));
        let [left, right] =
            [&mut context, &mut untouched].map(|context| logits_after(context, 0, &[Token(7)]));
        assert_same_bits(&left, &right, "a refused move");
    }
    let mut whole = spilled(&model, &params(), RollingKv::resident().shift(Shift::Guard));
    logits_after(&mut whole, 0, &some_tokens(100, 1));
    whole
        .memory()
        .shift(0, 50.., -10)
        .expect("a resident window moves");
}

/// In order auto, a window that holds every cell turns K as llama.cpp does; no cell of ours is counted.
#[test]
fn a_resident_window_in_order_auto_moves_as_stock_does() {
    let model = heads_of(64, 2, &backend());
    for kv in [KvType::F16, KvType::Q8_0] {
        let params = params().cache_types(kv, kv);
        let window = RollingKv::resident().order(Order::Auto).tile_cells(32);
        let mut stock = model.context(&params).expect("it is made");
        let mut whole = model
            .context(&params.clone().rolling_kv(window))
            .expect("it is made");
        let [left, right] = [&mut stock, &mut whole].map(|context| {
            context.append(0, &some_tokens(200, 1)).expect("it fits");
            context.memory().remove(0, 10..60).expect("removed");
            context.memory().shift(0, 60.., -50).expect("moved");
            logits_after(context, 0, &[Token(7)])
        });
        assert_same_bits(&left, &right, "order auto");
        assert_eq!(moved(&whole), (0, 0));
    }
}

/// What stock cannot turn: bf16, which ends the process there, and quantised heads that are not spread.
#[test]
fn regression_what_stock_cannot_turn_is_refused_without_tiles_and_moves_with_them() {
    let backend = backend();
    for (head_dim, kv) in [(64, KvType::Bf16), (32, KvType::Q8_0)] {
        let model = heads_of(head_dim, 1, &backend);
        let params = params().cache_types(kv, KvType::F16);
        let mut stock = model.context(&params).expect("it is made");
        stock.append(0, &some_tokens(40, 1)).expect("it fits");
        assert!(!stock.memory().can_shift(), "{kv}");
        let error = stock.memory().shift(0, 10.., 5).expect_err("refused");
        assert!(error.to_string().contains("use f16"), "{error}");
        stock.append(0, &some_tokens(1, 2)).expect("it goes on");

        let mut tiles = resident(&model, &params);
        tiles.append(0, &some_tokens(40, 1)).expect("it fits");
        tiles.memory().shift(0, 10.., 5).expect("it moves");
        tiles.append(0, &some_tokens(1, 2)).expect("it goes on");
    }
}

/// The path is for devices with memory of their own; on the CPU there is one.
#[test]
fn the_path_changes_no_bit_on_the_cpu() {
    let model = heads_of(64, 2, &backend());
    let found = [ShiftPath::Auto, ShiftPath::Host, ShiftPath::Device].map(|path| {
        let spill = tiled(RollingKv::window_cells(64).shift_path(path));
        let mut context = model.context(&params().rolling_kv(spill)).expect("made");
        context.append(0, &some_tokens(200, 1)).expect("it fits");
        context.memory().shift(0, 50.., 9).expect("moved");
        logits_after(&mut context, 0, &[Token(7)])
    });
    assert_same_bits(&found[0], &found[1], "host");
    assert_same_bits(&found[0], &found[2], "device");
}

/// Sliding, hybrid and latent caches move as their resident twins do; what cannot move says so and goes on.
#[test]
fn every_kind_of_model_moves_with_the_same_bits_or_says_why_not() {
    let backend = backend();
    let mut seen = Vec::new();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for (kv, full) in [
            (KvType::F16, true),
            (KvType::F16, false),
            (KvType::Q8_0, true),
        ] {
            let mut params = params().cache_types(kv, kv);
            if full {
                params = params.swa_full();
            }
            let what = format!("{name}, {kv}, sliding cache full: {full}");
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
            twins.append(&what, 0, &some_tokens(200, 1));
            let can = twins.both(&what, |context| {
                let mut memory = context.memory();
                let can = memory.can_shift();
                match memory.shift(0, 100.., -30) {
                    Ok(()) => assert!(can, "{what}"),
                    Err(SequenceError::CannotShift { reason }) => {
                        assert!(!can && !reason.is_empty(), "{what}: {reason}");
                    }
                    Err(other) => panic!("{what}: {other}"),
                }
                can
            });
            next_few(&mut twins, &what);
            seen.push((name, full, can));
        }
    }
    for expected in [
        ("llama", true, true),
        ("sliding", true, true),
        ("sliding", false, false),
        ("hybrid", true, true),
        ("latent", true, true),
        ("many_positions", true, false),
    ] {
        assert!(seen.contains(&expected), "{expected:?}: {seen:?}");
    }
}
