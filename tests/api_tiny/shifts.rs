use rolling_kv::{ContextParams, KvType, SequenceError};

use super::sequences::{close, fresh, next, one_layer, params};
use crate::common::tiny::{self, Shape};
use crate::common::{backend, fewer_if_slow, logits_after, nmse, some_tokens};

#[test]
fn a_shift_gives_what_a_fresh_run_at_the_new_positions_gives() {
    // Heads of 64, so that a quantised K can be shifted too.
    let shape = Shape {
        n_embd: 128,
        n_layer: 1,
        ..Shape::default()
    };
    let model = tiny::model_of(&backend(), &shape);
    let tokens = some_tokens(300, 1);
    for kv_type in [KvType::F32, KvType::F16, KvType::Q8_0] {
        let mut context = model
            .context(&params().cache_types(kv_type, KvType::F16))
            .unwrap();
        context.append(0, &tokens).unwrap();
        context.memory().remove(0, 4..260).unwrap();
        context.memory().shift(0, 260.., -256).unwrap();
        assert_eq!(context.positions(0).unwrap(), Some(0..=43));
        let kept: Vec<_> = [&tokens[..4], &tokens[260..]].concat();
        let distance = nmse(&fresh(&model, &kept), &next(&mut context, 0));
        assert!(
            distance < if kv_type == KvType::Q8_0 { 1e-2 } else { 1e-5 },
            "{kv_type}: {distance}"
        );
    }
}

#[test]
fn two_shifts_before_a_batch_add_up() {
    let model = tiny::model(&backend());
    let make = || {
        let mut context = model.context(&params()).unwrap();
        context.append(0, &some_tokens(200, 1)).unwrap();
        context
    };
    let mut once = make();
    once.memory().shift(0, 50.., 5).unwrap();
    let mut twice = make();
    twice.memory().shift(0, 50.., 8).unwrap();
    twice.memory().shift(0, 58.., -3).unwrap();
    assert_eq!(once.positions(0).unwrap(), twice.positions(0).unwrap());
    assert_eq!(next(&mut once, 0), next(&mut twice, 0));

    let mut between = make();
    between.memory().shift(0, 50.., 8).unwrap();
    between.memory().remove(0, 10..20).unwrap();
    between.memory().shift(0, 58.., -3).unwrap();
    let mut reference = make();
    reference.memory().remove(0, 10..20).unwrap();
    reference.memory().shift(0, 50.., 5).unwrap();
    assert_eq!(next(&mut between, 0), next(&mut reference, 0));
}

#[test]
fn a_shift_out_of_range_is_refused_and_changes_nothing() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(20, 1)).unwrap();
    for (start, delta) in [
        (0, -1),
        (5, -6),
        (0, i32::MIN),
        (0, i32::MAX),
        (0, i32::MAX - 19),
    ] {
        let error = context.memory().shift(0, start.., delta).unwrap_err();
        assert!(
            matches!(error, SequenceError::MovedOut { seq: 0, .. }),
            "{delta}: {error}"
        );
    }
    assert_eq!(context.positions(0).unwrap(), Some(0..=19));
    assert!(close(
        &fresh(&model, &some_tokens(20, 1)),
        &next(&mut context, 0)
    ));
    context
        .memory()
        .shift(0, .., i32::MAX - 21)
        .expect("the last position is in range");
}

/// llama_memory_seq_div records the shift with the wrong sign; a division must equal the moves it is made of.
#[test]
fn regression_a_division_is_the_sum_of_its_moves() {
    let model = one_layer(&backend());
    let make = || {
        let mut context = model.context(&params()).unwrap();
        context.append(0, &some_tokens(160, 1)).unwrap();
        context
    };
    for (range, divisor) in [(0..160, 2), (0..128, 2), (3..99, 7)] {
        let mut divided = make();
        divided.memory().divide(0, range.clone(), divisor).unwrap();
        let mut moved = make();
        for position in range {
            let delta = position / divisor - position;
            moved.memory().shift(0, position..=position, delta).unwrap();
        }
        let (divided_at, moved_at) = (divided.positions(0).unwrap(), moved.positions(0).unwrap());
        assert_eq!(divided_at, moved_at);
        assert_eq!(next(&mut divided, 0), next(&mut moved, 0), "/{divisor}");
    }
}

#[test]
fn divisors_below_one_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(20, 1)).unwrap();
    for divisor in [0, -1, i32::MIN] {
        let error = context.memory().divide(0, .., divisor).unwrap_err();
        assert!(matches!(error, SequenceError::BadDivisor { .. }), "{error}");
    }
    context.memory().divide(0, .., 1).unwrap();
    assert!(close(
        &fresh(&model, &some_tokens(20, 1)),
        &next(&mut context, 0)
    ));
}

#[test]
fn can_shift_is_true_exactly_where_a_shift_works() {
    let backend = backend();
    let mut seen = Vec::new();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for kv_type in [KvType::F16, KvType::F32, KvType::Q8_0, KvType::Q4_0] {
            for unified in [false, true] {
                for full in [false, true] {
                    let mut params = ContextParams::new(512)
                        .threads(1)
                        .n_seq_max(2)
                        .n_ubatch(64)
                        .cache_types(kv_type, kv_type);
                    if unified {
                        params = params.kv_unified();
                    }
                    if full {
                        params = params.swa_full();
                    }
                    let mut context = model.context(&params).unwrap();
                    context.append(1, &some_tokens(60, 1)).unwrap();
                    let can_shift = context.memory().can_shift();
                    let shifted = context.memory().shift(1, .., 3);
                    assert_eq!(
                        can_shift,
                        shifted.is_ok(),
                        "{name} {kv_type} unified {unified}: {shifted:?}"
                    );
                    if let Err(error) = shifted {
                        assert!(
                            matches!(error, SequenceError::CannotShift { .. }),
                            "{error}"
                        );
                    }
                    let last = *context.positions(1).unwrap().unwrap().end();
                    assert_eq!(last, if can_shift { 62 } else { 59 }, "{name}");
                    assert!(
                        next(&mut context, 1).iter().all(|logit| logit.is_finite()),
                        "{name}"
                    );
                    seen.push((name, can_shift));
                }
            }
        }
    }
    for pair in [
        ("llama", true),
        ("llama", false),
        ("sliding", true),
        ("sliding", false),
        ("many_positions", false),
    ] {
        assert!(seen.contains(&pair), "{pair:?}");
    }
}

/// llama.cpp shifts a quantised K through a matrix that it makes for heads of 64 and more only, and crashes without it.
#[test]
fn regression_a_quantised_k_of_small_heads_does_not_shift() {
    let backend = backend();
    for (head_dim, works) in [(32, false), (64, true), (96, false), (128, true)] {
        let model = tiny::model_of(
            &backend,
            &Shape {
                n_embd: 2 * head_dim,
                ..Shape::default()
            },
        );
        let mut context = model
            .context(&params().cache_types(KvType::Q8_0, KvType::F16))
            .unwrap();
        context.append(0, &some_tokens(40, 1)).unwrap();
        assert_eq!(
            context.memory().shift(0, .., 5).is_ok(),
            works,
            "{head_dim}"
        );
        assert!(next(&mut context, 0)[0].is_finite());
    }
}

#[test]
fn a_sliding_window_shifts_only_when_both_caches_are_equal() {
    let model = tiny::sliding(&backend());
    let can_shift = |params: ContextParams| {
        model
            .context(&params.threads(1))
            .unwrap()
            .memory()
            .can_shift()
    };
    assert!(can_shift(ContextParams::new(512).n_ubatch(64).swa_full()));
    assert!(
        can_shift(ContextParams::new(512).n_ubatch(512)),
        "the window's cache happens to be as large"
    );
    assert!(!can_shift(ContextParams::new(512).n_ubatch(64)));
}

#[test]
fn a_sliding_window_can_be_shifted_again_and_again() {
    let model = tiny::sliding(&backend());
    let mut context = model
        .context(&ContextParams::new(512).threads(1).n_ubatch(64).swa_full())
        .unwrap();
    for token in some_tokens(fewer_if_slow(1400).max(600), 1) {
        if context
            .positions(0)
            .unwrap()
            .is_some_and(|held| *held.end() >= 511)
        {
            context.memory().remove(0, 4..260).unwrap();
            context.memory().shift(0, 260.., -256).unwrap();
        }
        assert!(logits_after(&mut context, 0, &[token])[0].is_finite());
    }
}
