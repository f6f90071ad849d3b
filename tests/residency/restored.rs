use std::fs;

use rolling_kv::{Context, ContextParams, KvType, RollingKv, StateBlob, StateError};

use crate::common::{backend, logits_after, nmse, some_tokens, tiny};
use crate::twins::{Twins, resident, spilled};

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

fn windows() -> [RollingKv; 4] {
    [
        RollingKv::window_cells(64),
        RollingKv::window_cells(300),
        RollingKv::window_cells(0),
        RollingKv::resident(),
    ]
}

fn sequence(context: &mut Context<'_>, seq: i32) -> StateBlob {
    context.save_sequence(seq).expect("the sequence is saved")
}

fn whole(context: &mut Context<'_>) -> StateBlob {
    context.save_state().expect("the state is saved")
}

/// A sequence did not go back into cells that are not side by side (ggml-org/llama.cpp#17527): it does, whatever the
/// window was and is, and lies on both sides of the border then.
#[test]
fn a_state_goes_into_scattered_cells_of_any_window() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = params().n_seq_max(3).kv_unified();
    let fill = |context: &mut Context<'_>| {
        for block in 0..4 {
            logits_after(context, block % 2, &some_tokens(40, block as u64));
        }
        let saved = sequence(context, 0);
        context.memory().remove(0, ..).expect("it is removed");
        logits_after(context, 2, &some_tokens(30, 9));
        saved
    };
    let mut source = spilled(&model, &params, RollingKv::window_cells(100));
    let saved = fill(&mut source);
    for window in windows() {
        let what = format!("{window:?}");
        let mut twins = Twins::new(&model, &params, window);
        let own = twins.both("filling", fill);
        assert!(own == saved, "{what}: the state depends on the window");
        twins.both("restoring", |context| {
            format!("{:?}", context.restore_sequence(&saved, 0))
        });
        for seq in 0..3 {
            twins.append(&what, seq, &some_tokens(2, 10 + seq as u64));
        }
    }
}

/// What lay behind the place of the last write was not saved (ggml-org/llama.cpp#5840): cells that were freed in the
/// window are used again while later ones lie in the tail.
#[test]
fn cells_behind_a_hole_are_saved() {
    let backend = backend();
    let model = tiny::model(&backend);
    for window in windows() {
        let what = format!("{window:?}");
        let mut twins = Twins::new(&model, &params(), window);
        twins.append(&what, 0, &some_tokens(300, 1));
        twins.both("a hole", |context| {
            context.memory().remove(0, 100..200).is_ok()
        });
        twins.append(&what, 0, &some_tokens(20, 2));
        let saved = twins.both("the state", whole);
        let one = twins.both("the sequence", |context| sequence(context, 0));

        let mut others = Twins::new(&model, &params(), RollingKv::window_cells(128));
        others.both("restoring", |context| context.restore_state(&saved).is_ok());
        let expected = twins.append(&what, 0, &some_tokens(3, 3));
        let found = others.append(&what, 0, &some_tokens(3, 3));
        assert!(nmse(&found, &expected) < 1e-6, "{what}: another text");
        others.both("restoring", |context| {
            context.restore_sequence(&one, 0).is_ok()
        });
        others.append(&what, 0, &some_tokens(3, 3));
        others.assert_spilled(&what);
    }
}

/// Restoring a file that is not there emptied the slot (ggml-org/llama.cpp#14434, #9173): a spilled sequence stays as it
/// was when a state cannot be read.
#[test]
fn a_state_that_cannot_be_read_leaves_a_spilled_sequence_as_it_was() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut twins = Twins::new(&model, &params(), RollingKv::window_cells(64));
    twins.append("a prompt", 0, &some_tokens(200, 1));
    let before = twins.both("the state", whole);

    let dir = tempfile::tempdir().expect("a folder");
    let bytes = before.as_bytes();
    let mut damaged = bytes.to_vec();
    let middle = bytes.len() / 2;
    damaged[middle] ^= 1;
    let files: [(&str, Option<&[u8]>); 5] = [
        ("missing", None),
        ("empty", Some(&[])),
        ("header", Some(&bytes[..30])),
        ("cut", Some(&bytes[..middle])),
        ("damaged", Some(&damaged)),
    ];
    for (name, content) in files {
        let path = dir.path().join(name);
        if let Some(content) = content {
            fs::write(&path, content).expect("the file is written");
        }
        twins.both(name, |context| {
            let said = format!("{:?}", context.restore_state_file(&path));
            assert!(said.starts_with("Err"), "{name}: {said}");
            assert!(before == whole(context), "{name}: something changed");
            said
        });
    }
    twins.append("the next token", 0, &some_tokens(2, 2));
}

/// Saving or restoring an empty slot crashed (ggml-org/llama.cpp#14434).
#[test]
fn an_empty_sequence_empties_a_spilled_one() {
    let backend = backend();
    let model = tiny::model(&backend);
    for params in [params().n_seq_max(2), params().n_seq_max(2).kv_unified()] {
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
        twins.append("a prompt", 1, &some_tokens(150, 1));
        let empty = twins.both("nothing", |context| sequence(context, 0));
        twins.both("restoring nothing", |context| {
            context
                .restore_sequence(&empty, 1)
                .expect("an empty sequence is restored");
            context.positions(1).expect("it exists")
        });
        assert_eq!(twins.spilled.positions(1).expect("it exists"), None);
        twins.append("a new prompt", 1, &some_tokens(100, 2));
    }
}

/// A quantised row was read past its end, because the size of a value was taken for that of a row
/// (ggml-org/llama.cpp#5648): each part comes back byte for byte.
#[test]
fn a_quantised_cache_comes_back_byte_for_byte() {
    let backend = backend();
    let model = tiny::model(&backend);
    for (k, v) in [
        (KvType::Q4_0, KvType::Q8_0),
        (KvType::Q8_0, KvType::Q4_0),
        (KvType::Q5_1, KvType::Bf16),
        (KvType::Iq4Nl, KvType::Q5_0),
    ] {
        let what = format!("K {k}, V {v}");
        let params = params().cache_types(k, v);
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(37));
        twins.append(&what, 0, &some_tokens(90, 1));
        let saved = twins.both(&what, whole);
        for window in windows() {
            let mut others = Twins::new(&model, &params, window);
            others.both(&what, |context| {
                context.restore_state(&saved).expect("it is restored");
                assert!(saved == whole(context), "{what}: other bytes");
            });
            others.append(&what, 0, &some_tokens(2, 2));
        }
    }
}

/// What some models save beside a cell was not read back (ggml-org/llama.cpp#20273), and a state was bound to its slot
/// (ggml-org/llama.cpp#22756): every kind of model, whole and as another sequence, into every window.
#[test]
fn every_kind_of_model_comes_back_in_any_window_and_as_any_sequence() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        for unified in [false, true] {
            let mut params = ContextParams::new(1024)
                .n_seq_max(4)
                .n_ubatch(64)
                .threads(1);
            if unified {
                params = params.kv_unified();
            }
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
            twins.append(name, 2, &some_tokens(100, 1));
            let all = twins.both(name, whole);
            let one = twins.both(name, |context| sequence(context, 2));
            let expected = twins.append(name, 2, &some_tokens(2, 2));
            for window in [RollingKv::window_cells(96), RollingKv::resident()] {
                let mut others = Twins::new(&model, &params, window);
                others.both(name, |context| {
                    context.restore_state(&all).expect("the state is restored");
                });
                let found = others.append(name, 2, &some_tokens(2, 2));
                assert!(nmse(&found, &expected) < 1e-6, "{name}: another text");
                others.both(name, |context| {
                    context.memory().clear().expect("it is cleared");
                    context.restore_sequence(&one, 0).expect("it is restored");
                });
                let found = others.append(name, 0, &some_tokens(2, 2));
                assert!(nmse(&found, &expected) < 1e-6, "{name}: another text");
            }
        }
    }
}

/// A small state after a large one met the sizes of the large one (abetlen/llama-cpp-python#997): after the small one, no
/// cell of the tail is read.
#[test]
fn a_small_state_after_a_large_one_leaves_nothing_in_the_tail() {
    let backend = backend();
    let model = tiny::model(&backend);
    let states = [400, 20].map(|count| {
        let mut source = resident(&model, &params());
        logits_after(&mut source, 0, &some_tokens(count, 1));
        whole(&mut source)
    });
    let mut twins = Twins::new(&model, &params(), RollingKv::window_cells(64));
    for (state, in_tail) in [(0, true), (1, false), (0, true), (1, false)] {
        twins.both("restoring", |context| {
            context.restore_state(&states[state]).is_ok()
        });
        let before = twins.spilled.residency().totals();
        twins.append("the next token", 0, &some_tokens(1, 2));
        let after = twins.spilled.residency().totals();
        assert_eq!(
            after.tiles_tail > before.tiles_tail,
            in_tail,
            "state {state}: {before:?}, {after:?}"
        );
        assert_eq!(after.tail_bytes_read > before.tail_bytes_read, in_tail);
    }
}

/// With a full-size cache of the sliding layers, or with a second context that drafts, the start of the text was lost
/// (LostRuins/koboldcpp#2282): both contexts of such a pair come back, each with its window.
#[test]
fn a_pair_of_contexts_comes_back_with_its_sliding_cache() {
    let backend = backend();
    let target = tiny::sliding(&backend);
    let draft = tiny::model(&backend);
    let params = params().swa_full();
    for (name, model, window) in [("target", &target, 64), ("draft", &draft, 96)] {
        let mut twins = Twins::new(model, &params, RollingKv::window_cells(window));
        twins.append(name, 0, &some_tokens(200, 1));
        let saved = twins.both(name, |context| sequence(context, 0));
        let expected = twins.append(name, 0, &some_tokens(4, 2));
        let held = twins.both("clearing", |context| {
            context.memory().clear().expect("it is cleared");
            context.restore_sequence(&saved, 0).expect("it is restored");
            context.positions(0).expect("it exists")
        });
        // Of the sliding layers only what can still be seen is saved.
        assert_eq!(held.map(|held| *held.end()), Some(199), "{name}");
        let found = twins.append(name, 0, &some_tokens(4, 2));
        assert!(nmse(&found, &expected) < 1e-6, "{name}: another text");
        twins.assert_spilled(name);
    }
}

/// More was written than had been announced (ikawrakow/ik_llama.cpp#1204). Saving refuses that, so it is enough to save at
/// every border and in every shape.
#[test]
fn a_state_is_as_long_as_announced() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let params = params().n_seq_max(2).kv_unified();
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
        let save = |twins: &mut Twins<'_>, what: &str| {
            twins.both(&format!("{name}, {what}"), |context| {
                (whole(context), sequence(context, 0), sequence(context, 1))
            });
        };
        save(&mut twins, "empty");
        for count in [1, 62, 1, 1, 36] {
            twins.append(name, 0, &some_tokens(count, 1));
            save(&mut twins, "at a border");
        }
        twins.both("sharing", |context| {
            format!("{:?}", context.memory().copy(0, 1, ..))
        });
        save(&mut twins, "shared");
        twins.both("a hole", |context| {
            format!("{:?}", context.memory().remove(0, 20..80))
        });
        save(&mut twins, "with a hole");
    }
}

/// A state of another layout is refused with a reason also where a window would fit it.
#[test]
fn a_state_of_another_type_is_refused_in_any_window() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut source = spilled(&model, &params(), RollingKv::window_cells(64));
    logits_after(&mut source, 0, &some_tokens(100, 1));
    let saved = whole(&mut source);
    let other = params().cache_types(KvType::Q8_0, KvType::Q8_0);
    for window in windows() {
        let error = spilled(&model, &other, window)
            .restore_state(&saved)
            .expect_err("the types differ");
        assert!(matches!(error, StateError::OtherLayout { .. }), "{error}");
    }
}
