use rolling_kv::{Backend, Batch, Context, ContextParams, Model, Output, SequenceError, Token};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, fewer_if_slow, logits_after, nmse, some_tokens};

pub fn params() -> ContextParams {
    ContextParams::new(512).threads(1)
}

/// With one layer, K and V of a token depend on nothing but the token, so that edits can be compared with a fresh run.
pub fn one_layer(backend: &Backend) -> Model {
    tiny::model_of(
        backend,
        &Shape {
            n_layer: 1,
            ..Shape::default()
        },
    )
}

pub fn next(context: &mut Context<'_>, seq: i32) -> Vec<f32> {
    logits_after(context, seq, &[Token(77)])
}

pub fn fresh(model: &Model, tokens: &[Token]) -> Vec<f32> {
    let mut context = model.context(&params()).unwrap();
    context.append(0, tokens).unwrap();
    next(&mut context, 0)
}

pub fn close(left: &[f32], right: &[f32]) -> bool {
    nmse(left, right) < 1e-5
}

#[test]
fn sequences_out_of_range_are_refused_everywhere() {
    let model = tiny::model(&backend());
    for params in [params(), params().kv_unified(), params().n_seq_max(3)] {
        let mut context = model.context(&params).unwrap();
        context.append(0, &some_tokens(5, 1)).unwrap();
        for bad in [-1, -2, 3, 5, 255, 256, 300, i32::MAX, i32::MIN] {
            let mut memory = context.memory();
            let out_of_range = |done: Result<(), SequenceError>| {
                assert!(
                    matches!(done, Err(SequenceError::OutOfRange { seq, .. }) if seq == bad),
                    "{bad}"
                );
            };
            out_of_range(memory.remove(bad, ..));
            out_of_range(memory.copy(0, bad, ..));
            out_of_range(memory.copy(bad, 0, ..));
            out_of_range(memory.keep(bad));
            out_of_range(memory.shift(bad, .., 1));
            out_of_range(memory.divide(bad, .., 2));
            out_of_range(memory.positions(bad).map(|_| ()));
        }
        assert_eq!(context.positions(0).unwrap(), Some(0..=4));
        next(&mut context, 0);
    }
}

#[test]
fn ranges_below_zero_or_backwards_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(5, 1)).unwrap();
    let backwards = std::ops::Range { start: 4, end: 2 };
    let mut memory = context.memory();
    assert!(matches!(
        memory.remove(0, -1..3),
        Err(SequenceError::BadRange { start: -1, end: 3 })
    ));
    assert!(matches!(
        memory.remove(0, backwards.clone()),
        Err(SequenceError::BadRange { .. })
    ));
    assert!(matches!(
        memory.shift(0, backwards, 1),
        Err(SequenceError::BadRange { .. })
    ));
    memory
        .remove(0, 2..2)
        .expect("an empty range is nothing to do");
    memory
        .remove(0, 100..)
        .expect("a range without tokens is nothing to do");
    memory
        .remove(0, 0..=i32::MAX)
        .expect("the largest range is all");
    assert_eq!(memory.positions(0).unwrap(), None);
}

#[test]
fn removing_the_end_and_decoding_again_gives_the_same() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(40, 1);
    let mut context = model.context(&params()).unwrap();
    context.append(0, &tokens).unwrap();
    context.memory().remove(0, 25..).unwrap();
    assert_eq!(context.positions(0).unwrap(), Some(0..=24));
    context.append(0, &tokens[25..]).unwrap();
    assert!(close(&fresh(&model, &tokens), &next(&mut context, 0)));
}

#[test]
fn a_part_of_a_sequence_is_not_copied_between_buffers() {
    let model = tiny::model(&backend());
    let mut context = model
        .context(&ContextParams::new(1024).threads(1).n_seq_max(2))
        .unwrap();
    context.append(0, &some_tokens(200, 1)).unwrap();
    context.append(1, &some_tokens(3, 2)).unwrap();
    // llama.cpp takes some of these for whole, and asserts on the others.
    for (start, end) in [(0, 100), (1, 200), (0, 199), (10, 20), (199, 512)] {
        let error = context.memory().copy(0, 1, start..end).unwrap_err();
        assert!(
            matches!(error, SequenceError::PartialCopy { src: 0, dst: 1, .. }),
            "{start}..{end}: {error}"
        );
        assert!(error.to_string().contains("kv_unified"), "{error}");
    }
    assert_eq!(context.positions(1).unwrap(), Some(0..=2));
    for end in [200, 511, 512, i32::MAX] {
        context
            .memory()
            .copy(0, 1, 0..end)
            .expect("this is all of it");
    }
    let tokens = some_tokens(200, 1);
    assert!(close(&fresh(&model, &tokens), &next(&mut context, 1)));
    assert!(close(&fresh(&model, &tokens), &next(&mut context, 0)));
}

#[test]
fn a_copy_between_buffers_holds_what_was_there_when_it_was_made() {
    let model = one_layer(&backend());
    let tokens = some_tokens(60, 1);
    let make = || {
        let mut context = model
            .context(&ContextParams::new(1024).threads(1).n_seq_max(2))
            .unwrap();
        context.append(0, &tokens).unwrap();
        context
    };
    let mut copied = make();
    copied.memory().copy(0, 1, ..).unwrap();
    copied.memory().remove(0, ..10).unwrap();
    copied.memory().shift(0, 10.., -10).unwrap();
    let saved = copied.save_sequence(1).unwrap();
    let mut other = make();
    other.restore_sequence(&saved, 1).unwrap();
    assert!(close(&fresh(&model, &tokens), &next(&mut other, 1)));
    assert!(close(&fresh(&model, &tokens), &next(&mut copied, 1)));
    assert!(close(&fresh(&model, &tokens[10..]), &next(&mut copied, 0)));
}

#[test]
fn a_shared_prefix_reads_right_from_both_sequences() {
    let model = tiny::model(&backend());
    let (prefix, left, right) = (some_tokens(50, 1), some_tokens(9, 2), some_tokens(20, 3));
    let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    context.append(0, &prefix).unwrap();
    context.append(0, &left).unwrap();
    context.memory().copy(0, 1, ..50).unwrap();
    assert_eq!(context.positions(1).unwrap(), Some(0..=49));
    context.append(1, &right).unwrap();
    assert!(close(
        &fresh(&model, &[&prefix[..], &left].concat()),
        &next(&mut context, 0)
    ));
    assert!(close(
        &fresh(&model, &[&prefix[..], &right].concat()),
        &next(&mut context, 1)
    ));
}

#[test]
fn a_copy_replaces_what_was_there() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(30, 1);
    for params in [params().n_seq_max(2), params().n_seq_max(2).kv_unified()] {
        let mut context = model.context(&params).unwrap();
        context.append(0, &tokens).unwrap();
        context.append(1, &some_tokens(50, 2)).unwrap();
        context.memory().copy(0, 1, ..).unwrap();
        assert_eq!(context.positions(1).unwrap(), Some(0..=29));
        assert!(close(&fresh(&model, &tokens), &next(&mut context, 1)));
        context.memory().remove(0, ..).unwrap();
        context.memory().copy(0, 1, ..).expect("copying nothing");
        assert_eq!(context.positions(1).unwrap(), None);
    }
}

#[test]
fn keep_removes_every_other_sequence() {
    let model = tiny::model(&backend());
    for params in [params().n_seq_max(3), params().n_seq_max(3).kv_unified()] {
        let mut context = model.context(&params).unwrap();
        for seq in 0..3 {
            context
                .append(seq, &some_tokens(5 + seq as usize, seq as u64))
                .unwrap();
        }
        context.memory().keep(1).unwrap();
        let left: Vec<_> = (0..3).map(|seq| context.positions(seq).unwrap()).collect();
        assert_eq!(left, [None, Some(0..=5), None]);
        assert!(close(
            &fresh(&model, &some_tokens(6, 1)),
            &next(&mut context, 1)
        ));
    }
}

#[test]
fn a_state_has_no_parts_to_remove_or_copy() {
    let backend = backend();
    for model in [tiny::recurrent(&backend), tiny::hybrid(&backend)] {
        let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
        context.append(0, &some_tokens(150, 1)).unwrap();
        let before = context.save_state().unwrap();
        let error = context.memory().remove(0, 100..).unwrap_err();
        assert!(
            matches!(
                error,
                SequenceError::PartialRemoval {
                    seq: 0,
                    start: 100,
                    ..
                }
            ),
            "{error}"
        );
        let error = context.memory().copy(0, 1, ..100).unwrap_err();
        assert!(
            matches!(error, SequenceError::PartialCopy { .. }),
            "{error}"
        );
        assert!(
            before == context.save_state().unwrap(),
            "neither half was changed"
        );

        context
            .memory()
            .copy(0, 1, ..)
            .expect("all of it can be copied");
        assert!(close(
            &fresh(&model, &some_tokens(150, 1)),
            &next(&mut context, 1)
        ));
        context
            .memory()
            .remove(0, ..)
            .expect("all of it can be removed");
        assert_eq!(context.positions(0).unwrap(), None);
    }
}

#[test]
fn one_sequence_is_not_copied_to_a_second_that_is_not_there() {
    let model = tiny::hybrid(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(15, 1)).unwrap();
    assert!(matches!(
        context.memory().copy(0, 1, ..),
        Err(SequenceError::OutOfRange {
            seq: 1,
            n_seq_max: 1
        })
    ));
}

#[test]
fn a_whole_sequence_is_always_released() {
    let backend = backend();
    for model in [
        tiny::model(&backend),
        tiny::sliding(&backend),
        tiny::recurrent(&backend),
        tiny::hybrid(&backend),
    ] {
        let mut context = model.context(&params().n_ubatch(64).n_seq_max(2)).unwrap();
        for round in 0..fewer_if_slow(1000) {
            let seq = (round % 2) as i32;
            context.append(seq, &some_tokens(3, round as u64)).unwrap();
            context.memory().remove(seq, ..).unwrap();
            assert_eq!(context.positions(seq).unwrap(), None);
        }
        context.append(0, &some_tokens(60, 1)).unwrap();
        assert!(close(
            &fresh(&model, &some_tokens(60, 1)),
            &next(&mut context, 0)
        ));
    }
}

#[test]
fn clearing_forgets_everything() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_seq_max(2)).unwrap();
    context.append(0, &some_tokens(30, 1)).unwrap();
    context.append(1, &some_tokens(40, 2)).unwrap();
    context.memory().clear().unwrap();
    assert_eq!(
        (context.positions(0).unwrap(), context.positions(1).unwrap()),
        (None, None)
    );
    assert!(close(&fresh(&model, &some_tokens(9, 3)), &{
        context.append(1, &some_tokens(9, 3)).unwrap();
        next(&mut context, 1)
    }));
}

#[test]
fn cells_of_several_sequences_alternate_without_mixing() {
    let model = tiny::model(&backend());
    let texts: Vec<_> = (0..3).map(|seq| some_tokens(40, seq)).collect();
    let mut context = model.context(&params().n_seq_max(3).kv_unified()).unwrap();
    for position in 0..40 {
        let mut batch = Batch::new();
        for (seq, text) in texts.iter().enumerate() {
            batch.push(text[position], position as i32, &[seq as i32], Output::Yes);
        }
        context.decode(&batch).unwrap();
    }
    for (seq, text) in texts.iter().enumerate() {
        assert!(
            close(&fresh(&model, text), &next(&mut context, seq as i32)),
            "sequence {seq}"
        );
    }
}
