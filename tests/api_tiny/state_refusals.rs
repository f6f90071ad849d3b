use std::fs;

use rolling_kv::{
    Context, ContextParams, FlashAttention, KvType, Model, SequenceError, StateBlob, StateError,
};

use super::state::{close, filled, next, params};
use crate::common::backend;
use crate::common::tiny::{self, Shape};

type Expected = fn(&StateError) -> bool;

/// Checks that `restore` fails as `expected` says and that the context holds what it held.
fn untouched(
    model: &Model,
    params: &ContextParams,
    restore: impl Fn(&mut Context<'_>) -> Result<(), StateError>,
    expected: Expected,
) {
    let mut context = filled(model, params, 0, 200);
    let error = restore(&mut context).expect_err("this cannot be restored");
    assert!(expected(&error), "{error}");
    assert_eq!(context.positions(0).unwrap(), Some(0..=199));
    let mut reference = filled(model, params, 0, 200);
    assert!(
        close(&next(&mut reference, 0), &next(&mut context, 0)),
        "{error}"
    );
}

fn untouched_end(
    model: &Model,
    params: &ContextParams,
    restore: impl Fn(&mut Context<'_>) -> Result<(), StateError>,
) {
    let mut context = filled(model, params, 0, 100);
    let error = restore(&mut context).expect_err("this cannot be restored");
    assert!(matches!(error, StateError::DoesNotFit(_)), "{error}");
    assert!(
        close(
            &next(&mut filled(model, params, 0, 100), 0),
            &next(&mut context, 0)
        ),
        "{error}"
    );
}

#[test]
fn a_state_of_another_model_is_refused() {
    let backend = backend();
    let model = tiny::model(&backend);
    let others = [
        tiny::model_of(
            &backend,
            &Shape {
                seed: 2,
                ..Shape::default()
            },
        ),
        tiny::model_of(
            &backend,
            &Shape {
                n_layer: 3,
                ..Shape::default()
            },
        ),
        tiny::model_of(
            &backend,
            &Shape {
                n_head_kv: 2,
                ..Shape::default()
            },
        ),
        tiny::recurrent(&backend),
    ];
    for other in &others {
        let whole = filled(other, &params(), 0, 30).save_state().unwrap();
        let one = filled(other, &params(), 0, 30).save_sequence(0).unwrap();
        let is_other = |error: &StateError| matches!(error, StateError::OtherModel);
        untouched(
            &model,
            &params(),
            |context| context.restore_state(&whole),
            is_other,
        );
        untouched(
            &model,
            &params(),
            |context| context.restore_sequence(&one, 0),
            is_other,
        );
    }
}

#[test]
fn a_state_of_another_layout_is_refused_by_name() {
    let model = tiny::model(&backend());
    let cases = [
        (
            params().cache_types(KvType::Q8_0, KvType::F16),
            "type_k = q8_0 and this context has f16",
        ),
        (
            params().cache_types(KvType::F16, KvType::F32),
            "type_v = f32",
        ),
        (
            params().flash_attention(FlashAttention::Off),
            "flash attention off",
        ),
        (params().n_seq_max(2), "number of separate sequences = 2"),
    ];
    for (other, text) in cases {
        let saved = filled(&model, &other, 0, 30).save_state().unwrap();
        let error = filled(&model, &params(), 0, 5)
            .restore_state(&saved)
            .unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        let restore = |context: &mut Context<'_>| context.restore_state(&saved);
        untouched(&model, &params(), restore, |error| {
            matches!(error, StateError::OtherLayout { .. })
        });
    }
}

#[test]
fn a_state_of_the_other_kind_is_refused() {
    let model = tiny::model(&backend());
    let whole = filled(&model, &params(), 0, 30).save_state().unwrap();
    let one = filled(&model, &params(), 0, 30).save_sequence(0).unwrap();
    let is_kind = |error: &StateError| matches!(error, StateError::OtherKind { .. });
    untouched(
        &model,
        &params(),
        |context| context.restore_state(&one),
        is_kind,
    );
    untouched(
        &model,
        &params(),
        |context| context.restore_sequence(&whole, 0),
        is_kind,
    );
}

#[test]
fn a_state_that_does_not_fit_leaves_what_was_there() {
    let model = tiny::model(&backend());
    let large = filled(&model, &params(), 0, 400);
    let does_not_fit = |error: &StateError| matches!(error, StateError::DoesNotFit(_));
    let small = ContextParams::new(256).threads(1);
    let (whole, one) = {
        let mut large = large;
        (large.save_state().unwrap(), large.save_sequence(0).unwrap())
    };
    untouched(
        &model,
        &small,
        |context| context.restore_state(&whole),
        does_not_fit,
    );
    untouched(
        &model,
        &small,
        |context| context.restore_sequence(&one, 0),
        does_not_fit,
    );

    // Room is there in total, but the other sequence holds it.
    let shared = params().n_seq_max(2).kv_unified();
    untouched(
        &model,
        &shared,
        |context| context.restore_sequence(&one, 1),
        does_not_fit,
    );

    // A sequence that the smaller context does not have.
    let many = filled(&model, &params().n_seq_max(4).kv_unified(), 3, 30)
        .save_state()
        .unwrap();
    untouched(
        &model,
        &shared,
        |context| context.restore_state(&many),
        does_not_fit,
    );
}

#[test]
fn a_half_that_does_not_fit_puts_the_other_half_back() {
    let backend = backend();
    for model in [tiny::sliding(&backend), tiny::hybrid(&backend)] {
        let whole = filled(&model, &params(), 0, 400).save_state().unwrap();
        let small = ContextParams::new(256).threads(1).n_ubatch(64);
        untouched_end(&model, &small, |context| context.restore_state(&whole));
    }
}

#[test]
fn bytes_that_are_cut_damaged_or_foreign_are_refused() {
    let model = tiny::model(&backend());
    let bytes = filled(&model, &params(), 0, 30)
        .save_sequence(0)
        .unwrap()
        .into_bytes();
    assert!(StateBlob::from_bytes(bytes.clone()).is_ok());
    for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = StateBlob::from_bytes(bytes[..len].to_vec()).unwrap_err();
        assert!(
            matches!(error, StateError::Truncated { .. } | StateError::NotAState),
            "{len}: {error}"
        );
    }
    for at in (0..bytes.len()).step_by(89).chain([bytes.len() - 1]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = StateBlob::from_bytes(damaged).unwrap_err();
        assert!(
            matches!(
                error,
                StateError::Corrupt | StateError::NotAState | StateError::OtherFormat { .. }
            ),
            "{at}: {error}"
        );
    }
    let longer = [&bytes[..], b"more"].concat();
    assert!(matches!(
        StateBlob::from_bytes(longer),
        Err(StateError::TrailingBytes { extra: 4 })
    ));
    for foreign in [
        &b""[..],
        b"no",
        b"ggsq and more of a foreign state file",
        &[0; 500],
    ] {
        assert!(
            matches!(
                StateBlob::from_bytes(foreign.to_vec()),
                Err(StateError::NotAState)
            ),
            "{foreign:?}"
        );
    }
}

#[test]
fn files_that_cannot_be_read_leave_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny::model(&backend());
    let path = folder.path().join("state.rkv");
    filled(&model, &params(), 0, 90)
        .save_state_file(&path)
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let refused = |name: &str, content: &[u8], expected: Expected| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        untouched(
            &model,
            &params(),
            |context| context.restore_state_file(&path),
            expected,
        );
    };
    refused("empty", &[], |error| matches!(error, StateError::NotAState));
    refused("cut header", &bytes[..50], |error| {
        matches!(error, StateError::Truncated { .. })
    });
    refused("cut", &bytes[..bytes.len() - 100], |error| {
        matches!(error, StateError::Truncated { .. })
    });
    refused("longer", &[&bytes[..], b"x"].concat(), |error| {
        matches!(error, StateError::TrailingBytes { .. })
    });
    refused("damaged", &damaged, |error| {
        matches!(error, StateError::Corrupt)
    });
    let is_io = |error: &StateError| matches!(error, StateError::Io { .. });
    untouched(
        &model,
        &params(),
        |context| context.restore_state_file(folder.path().join("missing")),
        is_io,
    );
    untouched(
        &model,
        &params(),
        |context| context.restore_state_file(folder.path()),
        is_io,
    );
    untouched(
        &model,
        &params(),
        |context| context.save_state_file(folder.path().join("no/such/folder")),
        is_io,
    );
    untouched(
        &model,
        &params(),
        |context| context.save_state_file("/"),
        is_io,
    );
    let error = filled(&model, &params(), 0, 5)
        .restore_state_file(folder.path().join("missing"))
        .unwrap_err();
    assert!(
        error.to_string().contains("missing"),
        "the file is named: {error}"
    );
}

#[test]
fn sequences_that_are_not_there_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny::model(&backend());
    let mut context = filled(&model, &params(), 0, 5);
    let saved = context.save_sequence(0).unwrap();
    for bad in [-1, -2, 1, 256] {
        let out_of_range = |done: Result<(), StateError>| {
            assert!(
                matches!(
                    done,
                    Err(StateError::Sequence(SequenceError::OutOfRange { .. }))
                ),
                "{bad}"
            );
        };
        out_of_range(context.save_sequence(bad).map(|_| ()));
        out_of_range(context.restore_sequence(&saved, bad));
        out_of_range(context.save_sequence_file(folder.path().join("x"), bad));
        out_of_range(context.restore_sequence_file(folder.path().join("x"), bad));
    }
}
