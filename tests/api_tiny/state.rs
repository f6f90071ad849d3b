use std::fs;

use rolling_kv::{Context, ContextParams, FlashAttention, KvType, Model, StateKind, Token};

use crate::common::tiny;
use crate::common::{backend, logits_after, nmse, some_tokens};

pub fn params() -> ContextParams {
    ContextParams::new(512).threads(1).n_ubatch(64)
}

pub fn next(context: &mut Context<'_>, seq: i32) -> Vec<f32> {
    logits_after(context, seq, &[Token(77)])
}

pub fn close(left: &[f32], right: &[f32]) -> bool {
    nmse(left, right) < 1e-5
}

pub fn filled<'model>(
    model: &'model Model,
    params: &ContextParams,
    seq: i32,
    count: usize,
) -> Context<'model> {
    let mut context = model.context(params).unwrap();
    context.append(seq, &some_tokens(count, 1)).unwrap();
    context
}

fn expected(model: &Model, count: usize) -> Vec<f32> {
    next(&mut filled(model, &params(), 0, count), 0)
}

#[test]
fn a_context_comes_back_as_it_was() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for unified in [false, true] {
            let params = if unified {
                params().n_seq_max(3).kv_unified()
            } else {
                params().n_seq_max(3)
            };
            let mut context = filled(&model, &params, 1, 90);
            context.append(2, &some_tokens(20, 2)).unwrap();
            let saved = context.save_state().unwrap();
            assert_eq!(saved.kind(), StateKind::Context);

            let mut other = filled(&model, &params, 0, 33);
            other.restore_state(&saved).unwrap();
            let held = |context: &Context<'_>| {
                (0..3)
                    .map(|seq| context.positions(seq).unwrap())
                    .collect::<Vec<_>>()
            };
            assert_eq!(held(&context), held(&other), "{name}");
            for seq in [1, 2] {
                assert!(
                    close(&next(&mut context, seq), &next(&mut other, seq)),
                    "{name} sequence {seq}"
                );
            }
        }
    }
}

#[test]
fn a_sequence_comes_back_as_another_one() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for unified in [false, true] {
            let params = if unified {
                params().n_seq_max(4).kv_unified()
            } else {
                params().n_seq_max(4)
            };
            let mut context = filled(&model, &params, 2, 70);
            let saved = context.save_sequence(2).unwrap();
            assert_eq!(saved.kind(), StateKind::Sequence);
            context.append(0, &some_tokens(11, 5)).unwrap();
            context.restore_sequence(&saved, 0).unwrap();
            let end = |seq| context.positions(seq).unwrap().map(|held| *held.end());
            assert_eq!((end(0), end(2)), (Some(69), Some(69)), "{name}");
            assert!(
                close(&next(&mut context, 2), &next(&mut context, 0)),
                "{name} unified {unified}"
            );
        }
    }
}

#[test]
fn an_empty_sequence_restores_to_an_empty_one() {
    let model = tiny::model(&backend());
    for params in [params().n_seq_max(2), params().n_seq_max(2).kv_unified()] {
        let mut context = filled(&model, &params, 1, 50);
        let empty = context.save_sequence(0).unwrap();
        context.restore_sequence(&empty, 1).unwrap();
        assert_eq!(context.positions(1).unwrap(), None);
        let nothing = context.save_state().unwrap();
        context.append(0, &some_tokens(5, 1)).unwrap();
        context.restore_state(&nothing).unwrap();
        assert_eq!(context.positions(0).unwrap(), None);
        context.append(0, &some_tokens(50, 1)).unwrap();
        assert!(close(&expected(&model, 50), &next(&mut context, 0)));
    }
}

#[test]
fn a_small_state_after_a_large_one_leaves_nothing_of_it() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    let states: Vec<_> = [400, 20]
        .map(|count| filled(&model, &params(), 0, count).save_state().unwrap())
        .to_vec();
    for (state, count) in [(0, 400), (1, 20), (0, 400)] {
        context.restore_state(&states[state]).unwrap();
        assert_eq!(context.positions(0).unwrap(), Some(0..=count - 1));
        assert!(
            close(&expected(&model, count as usize), &next(&mut context, 0)),
            "{count}"
        );
    }
}

#[test]
fn a_state_fits_into_scattered_cells() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_seq_max(3).kv_unified()).unwrap();
    let (first, second) = (some_tokens(160, 1), some_tokens(160, 2));
    for start in (0..160).step_by(40) {
        context.append(0, &first[start..start + 40]).unwrap();
        context.append(1, &second[start..start + 40]).unwrap();
    }
    let saved = context.save_sequence(0).unwrap();
    context.memory().remove(0, ..).unwrap();
    context.append(2, &some_tokens(30, 3)).unwrap();
    context.restore_sequence(&saved, 0).unwrap();
    assert!(close(&expected(&model, 160), &next(&mut context, 0)));
}

#[test]
fn everything_up_to_the_last_used_cell_is_saved() {
    let model = tiny::model(&backend());
    let mut context = filled(&model, &params(), 0, 300);
    context.memory().remove(0, 100..200).unwrap();
    context.memory().shift(0, 200.., -100).unwrap();
    context.append(0, &some_tokens(20, 2)).unwrap();
    let saved = context.save_state().unwrap();
    let mut other = model.context(&params()).unwrap();
    other.restore_state(&saved).unwrap();
    assert_eq!(other.positions(0).unwrap(), Some(0..=219));
    assert!(close(&next(&mut context, 0), &next(&mut other, 0)));
}

/// llama.cpp saves the positions after a shift with the cells from before it.
#[test]
fn regression_a_shift_that_is_still_queued_is_saved_done() {
    let model = tiny::model(&backend());
    let mut context = filled(&model, &params(), 0, 100);
    context.memory().remove(0, ..40).unwrap();
    context.memory().shift(0, 40.., -40).unwrap();
    let saved = context.save_sequence(0).unwrap();
    let mut other = model.context(&params()).unwrap();
    other.restore_sequence(&saved, 0).unwrap();
    assert!(close(&next(&mut context, 0), &next(&mut other, 0)));
}

#[test]
fn a_restore_between_a_copy_and_the_next_batch_stays() {
    let model = tiny::model(&backend());
    let mut context = filled(&model, &params().n_seq_max(2), 0, 50);
    let saved = filled(&model, &params().n_seq_max(2), 1, 30)
        .save_sequence(1)
        .unwrap();
    context.memory().copy(0, 1, ..).unwrap();
    context.restore_sequence(&saved, 0).unwrap();
    assert!(close(&expected(&model, 30), &next(&mut context, 0)));
    assert!(close(&expected(&model, 50), &next(&mut context, 1)));
}

#[test]
fn every_layout_of_the_cache_comes_back() {
    let model = tiny::model(&backend());
    for params in [
        params().cache_types(KvType::Q4_0, KvType::Q8_0),
        params().cache_types(KvType::F32, KvType::Bf16),
        params().flash_attention(FlashAttention::Off),
        params()
            .flash_attention(FlashAttention::Off)
            .cache_types(KvType::Q8_0, KvType::F16),
    ] {
        let mut context = filled(&model, &params, 0, 90);
        let saved = context.save_sequence(0).unwrap();
        let mut other = filled(&model, &params, 0, 5);
        other.restore_sequence(&saved, 0).unwrap();
        assert_eq!(saved.as_bytes(), other.save_sequence(0).unwrap().as_bytes());
        assert_eq!(next(&mut context, 0), next(&mut other, 0));
    }
}

#[test]
fn files_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, one) = (
        folder.path().join("whole.rkv"),
        folder.path().join("one.rkv"),
    );
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let mut context = filled(&model, &params().n_seq_max(2), 1, 90);
        context.save_state_file(&whole).unwrap();
        context.save_sequence_file(&one, 1).unwrap();
        assert_eq!(
            fs::read(&one).unwrap(),
            context.save_sequence(1).unwrap().as_bytes(),
            "{name}"
        );
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "nothing else is left"
        );
        let mut other = filled(&model, &params().n_seq_max(2), 0, 20);
        other.restore_sequence_file(&one, 0).unwrap();
        let after = next(&mut context, 1);
        assert!(close(&after, &next(&mut other, 0)), "{name}");
        other.restore_state_file(&whole).unwrap();
        assert!(close(&after, &next(&mut other, 1)), "{name}");
    }
}

#[test]
fn outputs_from_before_a_restore_are_gone() {
    let model = tiny::model(&backend());
    let mut context = filled(&model, &params(), 0, 5);
    let saved = context.save_state().unwrap();
    assert!(context.last_logits().is_ok());
    context.restore_state(&saved).unwrap();
    assert!(context.last_logits().is_err());
}
