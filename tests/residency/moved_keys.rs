//! Keys that moved, beside keys that were made where those went.

use rolling_kv::{
    Batch, Context, ContextParams, KvType, Model, Output, RollingKv, RopeScaling, Row, Token,
};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, nmse, some_tokens};
use crate::shifted::{heads_of, params};
use crate::twins::spilled;

/// With one layer, K of a token depends on nothing but the token and its position.
fn fresh_and_moved(
    model: &Model,
    params: &ContextParams,
    spill: &RollingKv,
    moves: i32,
) -> [Vec<f32>; 2] {
    let tokens = some_tokens(300, 1);
    let mut moved = spilled(model, params, spill.clone());
    moved.append(0, &tokens).expect("it fits");
    for _ in 0..moves {
        moved.memory().shift(0, 100.., -7).expect("it moves");
        moved.memory().settle().expect("it is turned");
        moved.memory().shift(0, 93.., 7).expect("it moves back");
        moved.memory().settle().expect("it is turned");
    }
    let mut memory = moved.memory();
    memory.remove(0, 4..132).expect("removed");
    memory.shift(0, 132.., -128).expect("moved");
    let kept = [&tokens[..4], &tokens[132..]].concat();
    let mut fresh = spilled(model, params, spill.clone());
    fresh.append(0, &kept).expect("it fits");
    [&mut moved, &mut fresh].map(|context| logits_after(context, 0, &[Token(77)]))
}

/// Half of each head is turned, the other half is not.
#[test]
fn moved_keys_of_which_a_part_is_turned_are_those_of_a_fresh_run() {
    let shape = Shape {
        architecture: "stablelm",
        n_embd: 128,
        n_layer: 1,
        ..Shape::default()
    };
    let description = tiny::describe(&shape).u32("stablelm.rope.dimension_count", 32);
    let model = tiny::finish(description, &backend(), 1);
    let rope = spilled(&model, &params(), RollingKv::window_cells(96)).layer_rope(0);
    assert_eq!(rope.map(|rope| (rope.head, rope.rotated)), Some((64, 32)));
    for (kv, bound) in [(KvType::F16, 1e-5), (KvType::Q8_0, 1e-2)] {
        let params = params().cache_types(kv, KvType::F16);
        let [moved, fresh] = fresh_and_moved(&model, &params, &RollingKv::window_cells(96), 2);
        let distance = nmse(&fresh, &moved);
        assert!(distance < bound, "{kv}: {distance:e}");
    }
}

/// Other bases, linear and NTK scaling, and YaRN, whose scale of K's length a shift of llama.cpp's own applies once more.
#[test]
fn moved_keys_are_those_of_a_fresh_run_at_their_new_positions() {
    let backend = backend();
    let model = heads_of(64, 1, &backend);
    let scalings = [
        ("plain", params()),
        ("another base", params().rope_freq_base(500_000.0)),
        (
            "linear",
            params()
                .rope_scaling(RopeScaling::Linear)
                .rope_freq_scale(0.25),
        ),
        (
            "yarn",
            params()
                .rope_scaling(RopeScaling::Yarn)
                .rope_freq_scale(0.25)
                .yarn_original_ctx(128),
        ),
    ];
    for (name, params) in scalings {
        for (kv, bound) in [
            (KvType::F16, 1e-5),
            (KvType::Bf16, 1e-3),
            (KvType::Q8_0, 1e-2),
        ] {
            let params = params.clone().cache_types(kv, KvType::F16);
            for moves in [0, 4] {
                let [moved, fresh] =
                    fresh_and_moved(&model, &params, &RollingKv::window_cells(96), moves);
                let distance = nmse(&fresh, &moved);
                assert!(distance < bound, "{name}, {kv}, {moves}: {distance:e}");
            }
        }
    }
}

/// A half-precision float.
fn float_of(half: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(half);
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 0x1F), f32::from(bits & 0x3FF));
    sign * if exponent == 0 {
        mantissa * 2f32.powi(-24)
    } else {
        (1024.0 + mantissa) * 2f32.powi(exponent - 25)
    }
}

fn key(context: &mut Context<'_>, entry: usize, cell: u32) -> Vec<f32> {
    let (_, row) = context
        .read_cell(entry, Row::K, 0, cell)
        .expect("there is such a cell");
    row.chunks_exact(2)
        .map(|half| float_of([half[0], half[1]]))
        .collect()
}

/// Every token a sequence of its own, so that its keys depend on nothing but itself and its position, in every layer.
fn apart(context: &mut Context<'_>, position: i32) {
    let mut batch = Batch::new();
    for (seq, token) in some_tokens(APART as usize, 1).into_iter().enumerate() {
        batch.push(token, position, &[seq as i32], Output::Yes);
    }
    context.decode(&batch).expect("the tokens fit");
}

const APART: u32 = 64;

/// Asserts that keys which moved are, in every layer and cell, those that were made at their new positions.
fn every_layer_turns_as_it_makes<'model>(
    model: &'model Model,
    params: ContextParams,
) -> Context<'model> {
    let params = params.threads(1).n_seq_max(APART).kv_unified().swa_full();
    let mut moved = spilled(model, &params, RollingKv::window_cells(APART / 2));
    let mut fresh = spilled(model, &params, RollingKv::window_cells(APART / 2));
    apart(&mut moved, 300);
    apart(&mut fresh, 40);
    for seq in 0..APART as i32 {
        moved.memory().shift(seq, 300.., -260).expect("moved");
    }
    moved.memory().settle().expect("turned");
    let layers = moved.residency().layers;
    assert!(layers.iter().any(|layer| layer.sliding) && layers.iter().any(|layer| !layer.sliding));
    for entry in 0..layers.len() {
        for cell in 0..APART {
            let (was, is) = (key(&mut moved, entry, cell), key(&mut fresh, entry, cell));
            let distance = nmse(&is, &was);
            assert!(distance < 1e-6, "entry {entry}, cell {cell}: {distance:e}");
        }
    }
    moved
}

/// What the first and the last entry of a context's layers have, which are of the other and of the sliding ones.
fn of_both_kinds<T>(
    context: &Context<'_>,
    of: impl Fn(rolling_kv::LayerRope) -> T,
) -> [Option<T>; 2] {
    [0, context.residency().layers.len() - 1].map(|entry| context.layer_rope(entry).map(&of))
}

/// Gemma 3 answers degraded after a shift that turned its sliding layers by the other layers' base (ggml-org/llama.cpp#12373).
#[test]
fn each_layer_turns_by_its_own_base_in_both_parts() {
    let shape = Shape {
        architecture: "gemma3",
        n_layer: 6,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("gemma3.attention.sliding_window", 32)
        .u32("gemma3.attention.key_length", 32)
        .u32("gemma3.attention.value_length", 32)
        .f32("gemma3.rope.freq_base", 1_000_000.0)
        .f32("gemma3.rope.freq_base_swa", 10_000.0);
    let model = tiny::finish(description, &backend(), 3);
    let moved = every_layer_turns_as_it_makes(&model, ContextParams::new(256));
    // The other layers' base would be noticed.
    let [base, sliding] = of_both_kinds(&moved, |rope| rope.base);
    assert_ne!(base, sliding);
}

/// Step 3.5 turns half of the channels in some layers and all of them in others; llama.cpp refuses to move its tokens.
#[test]
fn each_layer_turns_its_own_part_of_a_head_in_both_parts() {
    let shape = Shape {
        architecture: "step35",
        n_layer: 4,
        n_head_kv: 2,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("step35.attention.sliding_window", 32)
        .u32s("step35.attention.sliding_window_pattern", &[0, 1, 0, 1])
        .u32("step35.rope.dimension_count", 32)
        .u32("step35.leading_dense_block_count", 1)
        .u32("step35.expert_count", 2)
        .u32("step35.expert_used_count", 1)
        .u32("step35.expert_feed_forward_length", 64)
        .u32("step35.expert_shared_feed_forward_length", 64);
    let model = tiny::finish(description, &backend(), 4);
    let moved = every_layer_turns_as_it_makes(&model, ContextParams::new(256));
    assert_eq!(
        of_both_kinds(&moved, |rope| rope.rotated),
        [Some(16), Some(32)]
    );
}

/// A tiny model has a random factor for each of its frequencies, as LongRoPE has, so that every test here turns by them.
#[test]
fn tiny_models_have_factors_of_their_frequencies() {
    let model = heads_of(64, 1, &backend());
    let context = spilled(&model, &params(), RollingKv::window_cells(96));
    assert_eq!(context.layer_rope(0).map(|rope| rope.plain), Some(false));
}

/// OLMo 3 has YaRN in the layers that look at everything, and none in those with a sliding window.
#[test]
fn each_layer_turns_with_yarn_or_without_as_it_was_made() {
    let shape = Shape {
        architecture: "olmo2",
        n_layer: 4,
        n_head_kv: 2,
        ..Shape::default()
    };
    let description = tiny::describe(&shape).u32("olmo2.attention.sliding_window", 32);
    let model = tiny::finish(description, &backend(), 5);
    let yarn = ContextParams::new(256)
        .rope_scaling(RopeScaling::Yarn)
        .rope_freq_scale(0.25)
        .yarn_original_ctx(128);
    let moved = every_layer_turns_as_it_makes(&model, yarn);
    assert_eq!(
        of_both_kinds(&moved, |rope| rope.plain),
        [Some(false), Some(true)]
    );
}
