//! A tail whose rows have a smaller type than the window's.

use std::error::Error;

use rolling_kv::{Context, ContextParams, KvType, Model, Order, RollingKv};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};

const TILE: u32 = 32;

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

fn spill(window: u32) -> RollingKv {
    RollingKv::window_cells(window)
        .order(Order::Tiled)
        .tile_cells(TILE)
}

fn shape() -> Shape {
    Shape {
        n_layer: 3,
        n_embd: 128,
        n_head: 4,
        n_head_kv: 2,
        ..Shape::default()
    }
}

fn run(context: &mut Context<'_>) -> Vec<f32> {
    let mut logits = logits_after(context, 0, &some_tokens(300, 1));
    for token in some_tokens(5, 2) {
        logits.extend(logits_after(context, 0, &[token]));
    }
    assert!(logits.iter().all(|logit| logit.is_finite()));
    logits
}

/// Largest distance of two rows of logits.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

/// With a window of 0 all rows are the tail's, as in a resident cache of that type.
#[test]
fn a_tail_that_is_everything_has_the_bits_of_a_cache_of_its_type() {
    let model = tiny::model_of(&backend(), &shape());
    for (k, v) in [
        (KvType::Q8_0, KvType::Q8_0),
        (KvType::Q4_0, KvType::Q5_1),
        (KvType::F16, KvType::Q4_1),
        (KvType::Bf16, KvType::Iq4Nl),
    ] {
        let of_type = params().cache_types(k, v).rolling_kv(spill(512));
        let expected = run(&mut model.context(&of_type).expect("the context is made"));
        let typed = params().rolling_kv(spill(0).tail_type_k(k).tail_type_v(v));
        let found = run(&mut model.context(&typed).expect("the context is made"));
        assert!(found == expected, "{k} {v}");
    }
}

#[test]
fn a_smaller_type_rounds_more_and_takes_less() {
    let model = tiny::model_of(&backend(), &shape());
    let with = |spill: RollingKv| {
        let mut context = model
            .context(&params().rolling_kv(spill))
            .expect("the context is made");
        let logits = run(&mut context);
        let totals = context.residency().totals();
        let host: u64 = context
            .residency()
            .layers
            .iter()
            .map(|layer| layer.host_bytes)
            .sum();
        (logits, totals.tail_bytes_read, host)
    };
    let (exact, read, host) = with(spill(64));
    let same = with(spill(64).tail_type_k(KvType::F16).tail_type_v(KvType::F16));
    assert!(same == (exact.clone(), read, host));
    let (q8, read_q8, host_q8) = with(
        spill(64)
            .tail_type_k(KvType::Q8_0)
            .tail_type_v(KvType::Q8_0),
    );
    let (q4, read_q4, host_q4) = with(
        spill(64)
            .tail_type_k(KvType::Q4_0)
            .tail_type_v(KvType::Q4_0),
    );
    let (off_q8, off_q4) = (apart(&exact, &q8), apart(&exact, &q4));
    let size = exact
        .iter()
        .fold(0.0f32, |most, logit| most.max(logit.abs()));
    assert!(
        0.0 < off_q8 && off_q8 < off_q4 && off_q8 < 0.02 * size,
        "{off_q8} {off_q4} {size}"
    );
    assert!(
        read_q8 * 32 == read * 17 && read_q4 * 32 == read * 9,
        "{read} {read_q8} {read_q4}"
    );
    assert!(
        host_q8 * 32 == host * 17 && host_q4 * 32 == host * 9,
        "{host} {host_q8} {host_q4}"
    );
}

/// Threads and budgets by layer change nothing as long as each cell lies in the same part.
#[test]
fn threads_change_no_bit_of_mixed_types() {
    let model = tiny::model_of(&backend(), &shape());
    let with = |threads: i32| {
        let spill = spill(96)
            .layer_window(1, 0)
            .tail_type_k(KvType::Q8_0)
            .tail_type_v(KvType::Q4_0);
        run(&mut model
            .context(&params().threads(threads as u32).rolling_kv(spill))
            .expect("the context is made"))
    };
    assert!(with(1) == with(2) && with(1) == with(3));
}

/// What is restored is rounded once more, and goes on.
#[test]
fn a_state_is_saved_and_restored_within_the_rounding_of_the_types() {
    let model = tiny::model_of(&backend(), &shape());
    let mixed = params().rolling_kv(
        spill(64)
            .tail_type_k(KvType::Q8_0)
            .tail_type_v(KvType::Q8_0),
    );
    let mut context = model.context(&mixed).expect("the context is made");
    logits_after(&mut context, 0, &some_tokens(300, 1));
    let saved = context.save_sequence(0).expect("the state is saved");
    let expected = logits_after(&mut context, 0, &some_tokens(3, 2));

    let mut other = model.context(&mixed).expect("the context is made");
    other
        .restore_sequence(&saved, 0)
        .expect("the state is restored");
    let found = logits_after(&mut other, 0, &some_tokens(3, 2));
    let size = expected
        .iter()
        .fold(0.0f32, |most, logit| most.max(logit.abs()));
    assert!(
        apart(&expected, &found) < 0.01 * size,
        "{} {size}",
        apart(&expected, &found)
    );

    // And into a cache of one type.
    let mut whole = model
        .context(&params().rolling_kv(spill(512)))
        .expect("the context is made");
    whole
        .restore_sequence(&saved, 0)
        .expect("the state is restored");
    let found = logits_after(&mut whole, 0, &some_tokens(3, 2));
    assert!(
        apart(&expected, &found) < 0.02 * size,
        "{} {size}",
        apart(&expected, &found)
    );
}

/// Turned in both parts, whatever their types.
#[test]
fn tokens_move_in_a_tail_of_another_type() {
    let model = tiny::model_of(&backend(), &shape());
    let run = |spill: RollingKv| {
        let mut context = model
            .context(&params().rolling_kv(spill))
            .expect("the context is made");
        logits_after(&mut context, 0, &some_tokens(300, 1));
        let mut memory = context.memory();
        memory.remove(0, 10..60).expect("the tokens are removed");
        memory.shift(0, 60.., -50).expect("the tokens move");
        let logits = logits_after(&mut context, 0, &some_tokens(2, 2));
        assert!(context.residency().totals().moved_host > 0);
        logits
    };
    let exact = run(spill(64));
    let mixed = run(spill(64)
        .tail_type_k(KvType::Q8_0)
        .tail_type_v(KvType::Q8_0));
    let size = exact
        .iter()
        .fold(0.0f32, |most, logit| most.max(logit.abs()));
    assert!(
        apart(&exact, &mixed) < 0.02 * size,
        "{} {size}",
        apart(&exact, &mixed)
    );
}

/// Why a context is not made, with what that follows from.
fn refused(model: &Model, params: ContextParams, spill: RollingKv) -> String {
    let error = model
        .context(&params.rolling_kv(spill))
        .expect_err("it is refused");
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(error) = at {
        text += &format!(": {error}");
        at = error.source();
    }
    text
}

#[test]
fn types_that_cannot_be_are_refused_by_name() {
    let model = tiny::model_of(&backend(), &shape());
    let of_q8 = params().cache_types(KvType::Q8_0, KvType::Q8_0);
    let larger = refused(&model, of_q8, spill(64).tail_type_k(KvType::F16));
    assert!(
        larger.contains("the tail's keys cannot have type f16 beside a cache of q8_0"),
        "{larger}"
    );
    let floats = refused(&model, params(), spill(64).tail_type_v(KvType::F32));
    assert!(
        floats.contains("the tail's values cannot have type f32"),
        "{floats}"
    );

    let of_24 = Shape {
        n_embd: 96,
        ..shape()
    };
    let model = tiny::model_of(&backend(), &of_24);
    let blocks = refused(&model, params(), spill(64).tail_type_k(KvType::Q8_0));
    assert!(blocks.contains("24 channels"), "{blocks}");
}
