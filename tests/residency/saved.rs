use rolling_kv::{ContextParams, RollingKv};

use crate::common::{backend, logits_after, some_tokens, tiny};
use crate::twins::{assert_same_bits, resident, spilled};

fn params() -> ContextParams {
    ContextParams::new(1536)
        .n_seq_max(3)
        .kv_unified()
        .n_ubatch(64)
        .threads(1)
}

#[test]
fn a_state_saved_with_one_window_is_restored_with_another() {
    let backend = backend();
    let model = tiny::model(&backend);
    let windows = [
        RollingKv::resident(),
        RollingKv::window_cells(0),
        RollingKv::window_cells(96),
        RollingKv::window_cells(320),
    ];
    let mut twin = resident(&model, &params());
    logits_after(&mut twin, 0, &some_tokens(300, 1));
    let expected = logits_after(&mut twin, 0, &some_tokens(3, 2));

    for from in &windows {
        let mut source = spilled(&model, &params(), from.clone());
        logits_after(&mut source, 0, &some_tokens(300, 1));
        let whole = source.save_state().expect("the state is saved");
        let one = source.save_sequence(0).expect("the sequence is saved");
        for to in &windows {
            let mut target = spilled(&model, &params(), to.clone());
            target.restore_state(&whole).expect("the state is restored");
            assert_same_bits(
                &logits_after(&mut target, 0, &some_tokens(3, 2)),
                &expected,
                &format!("{from:?} to {to:?}"),
            );

            let mut target = spilled(&model, &params(), to.clone());
            logits_after(&mut target, 2, &some_tokens(60, 9));
            target
                .restore_sequence(&one, 1)
                .expect("the sequence is restored");
            let found = logits_after(&mut target, 1, &some_tokens(3, 2));
            assert!(found.iter().all(|logit| logit.is_finite()));
        }
    }
}

#[test]
fn a_state_has_the_same_bytes_whatever_the_window() {
    let backend = backend();
    let model = tiny::model(&backend);
    let save = |spill| {
        let mut context = spilled(&model, &params(), spill);
        logits_after(&mut context, 0, &some_tokens(200, 1));
        logits_after(&mut context, 1, &some_tokens(90, 2));
        context
            .save_state()
            .expect("the state is saved")
            .into_bytes()
    };
    let expected = save(RollingKv::resident());
    for window in [0, 32, 96, 256] {
        assert!(
            save(RollingKv::window_cells(window)) == expected,
            "window {window}"
        );
    }
}

#[test]
fn a_fragmented_sequence_is_restored_over_both_parts() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut found = Vec::new();
    for spill in [RollingKv::resident(), RollingKv::window_cells(96)] {
        let mut context = spilled(&model, &params(), spill);
        for block in 0..4 {
            logits_after(&mut context, block % 2, &some_tokens(40, 20 + block as u64));
        }
        let saved = context.save_sequence(0).expect("the sequence is saved");
        context
            .memory()
            .remove(0, ..)
            .expect("a whole sequence can be removed");
        logits_after(&mut context, 2, &some_tokens(30, 30));
        context
            .restore_sequence(&saved, 0)
            .expect("the sequence is restored");
        let mut logits = logits_after(&mut context, 0, &some_tokens(2, 31));
        logits.extend(logits_after(&mut context, 1, &some_tokens(2, 32)));
        found.push(logits);
    }
    assert_same_bits(&found[1], &found[0], "fragmented");
}
