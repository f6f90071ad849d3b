use rolling_kv::{Batch, Context, ContextParams, DecodeError, Output, RollingKv, Row};

use crate::common::{backend, logits_after, nmse, some_tokens, tiny};
use crate::twins::{Twins, bits, spilled};

fn params(n_ctx: u32, n_seq_max: u32) -> ContextParams {
    ContextParams::new(n_ctx)
        .n_seq_max(n_seq_max)
        .n_ubatch(64)
        .threads(1)
}

/// The logits after each output of a batch, one after the other.
fn outputs(context: &mut Context<'_>, batch: &Batch, indices: &[usize]) -> Vec<f32> {
    context.decode(batch).expect("the batch fits");
    indices
        .iter()
        .flat_map(|index| {
            let logits = context.logits(*index).expect("this token is an output");
            logits.values().to_vec()
        })
        .collect()
}

/// A part of a sequence that was copied between buffers of their own ended the process (gravitee-io/llamaj.cpp#119):
/// refused, also when the tail is one more buffer to copy; and all of it brings window and tail along.
#[test]
fn only_whole_sequences_are_copied_between_streams() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut twins = Twins::new(&model, &params(1024, 2), RollingKv::window_cells(200));
    twins.append("the original", 0, &some_tokens(230, 1));
    for (start, end) in [(0, 100), (1, 230), (0, 229), (10, 20), (229, 512)] {
        let said = twins.both("a part", |context| {
            format!("{:?}", context.memory().copy(0, 1, start..end))
        });
        assert!(said.contains("PartialCopy"), "{start}..{end}: {said}");
    }
    assert_eq!(twins.spilled.positions(1).expect("it exists"), None);
    for end in [230, 511, 512, i32::MAX] {
        twins.both("all of it", |context| {
            context.memory().copy(0, 1, 0..end).is_ok()
        });
        twins.append(&format!("the copy up to {end}"), 1, &some_tokens(2, 2));
    }
    twins.append("the original, later", 0, &some_tokens(2, 3));
    for cell in [0, 191, 192, 229] {
        let row = twins.both("a copied cell", |context| {
            context
                .read_cell(1, Row::V, 1, cell)
                .expect("the cell exists")
                .1
        });
        let original = twins
            .spilled
            .read_cell(1, Row::V, 0, cell)
            .expect("the cell exists");
        assert_eq!(row, original.1, "cell {cell}");
    }
    twins.assert_spilled("copies");
}

/// As above, in one buffer: a part of a sequence is shared, not copied, on both sides of the border.
#[test]
fn a_shared_prefix_reads_right_on_both_sides_of_the_border() {
    let backend = backend();
    let model = tiny::model(&backend);
    for prefix in [40, 64, 100, 150] {
        let params = params(512, 2).kv_unified();
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
        twins.append("the whole", 0, &some_tokens(150, 1));
        twins.both("sharing", |context| {
            format!("{:?}", context.memory().copy(0, 1, ..prefix))
        });
        let what = format!("a prefix of {prefix}");
        let shared = twins.append(&what, 1, &some_tokens(20, 2));
        twins.append(&what, 0, &some_tokens(20, 3));

        let mut alone = spilled(&model, &params, RollingKv::window_cells(64));
        let text = [&some_tokens(150, 1)[..prefix as usize], &some_tokens(20, 2)].concat();
        alone.append(0, &text).expect("the tokens fit");
        let expected = alone.last_logits().expect("an output");
        assert!(nmse(&shared, expected.values()) < 1e-4, "{what}");
        twins.assert_spilled(&what);
    }
}

/// A copy between buffers is done later (ggml-org/llama.cpp#14363): edits of the original, and a state saved before the
/// next batch, must not see or lose it.
#[test]
fn a_copied_stream_holds_what_was_there_when_it_was_copied() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = params(1024, 2);
    let text = some_tokens(150, 1);
    let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
    twins.append("the original", 0, &text);
    let saved = twins.both("the saved copy", |context| {
        let mut memory = context.memory();
        memory.copy(0, 1, ..).expect("all of it is copied");
        memory.remove(0, ..50).expect("a part is removed");
        context.save_sequence(1).expect("the copy is saved")
    });

    let mut original = Twins::new(&model, &params, RollingKv::window_cells(64));
    original.append("an untouched original", 0, &text);
    let kept = original.both("the saved original", |context| {
        context.save_sequence(0).expect("the original is saved")
    });
    assert_eq!(saved.as_bytes().len(), kept.as_bytes().len());
    let expected = original.append("an untouched original", 0, &some_tokens(3, 2));

    let mut restored = Twins::new(&model, &params, RollingKv::window_cells(96));
    restored.both("the restored copy", |context| {
        context.restore_sequence(&saved, 0).is_ok()
    });
    for found in [
        twins.append("the copy", 1, &some_tokens(3, 2)),
        restored.append("the restored copy", 0, &some_tokens(3, 2)),
    ] {
        assert!(bits(&found) == bits(&expected), "the copy is not the same");
    }
    twins.append("what is left of the original", 0, &some_tokens(3, 2));
    twins.assert_spilled("copies");
}

/// Sequences in one batch got each other's masks, or the padding's (ggml-org/llama.cpp#5658, #7903): a short one beside
/// a long one, whose padding lies in the tail.
#[test]
fn sequences_of_different_lengths_in_one_batch_are_what_they_are_alone() {
    let backend = backend();
    let model = tiny::model(&backend);
    let texts = [some_tokens(40, 1), some_tokens(900, 2)];
    let spill = RollingKv::window_cells(300);
    for unified in [false, true] {
        let mut params = params(2048, 2);
        if unified {
            params = params.kv_unified();
        }
        let mut batch = Batch::new();
        for (seq, text) in texts.iter().enumerate() {
            batch.extend(text, 0, seq as i32);
        }
        let mut twins = Twins::new(&model, &params, spill.clone());
        let both = twins.both("one batch", |context| {
            bits(&outputs(context, &batch, &[39, 939]))
        });
        twins.append("the short one", 0, &some_tokens(2, 3));
        twins.append("the long one", 1, &some_tokens(2, 4));
        twins.assert_spilled("lengths");

        for (seq, text) in texts.iter().enumerate() {
            let mut alone = spilled(&model, &params, spill.clone());
            alone.append(seq as i32, text).expect("the tokens fit");
            let expected = alone.last_logits().expect("an output").values().to_vec();
            let found: Vec<f32> = both[seq * expected.len()..][..expected.len()]
                .iter()
                .map(|bits| f32::from_bits(*bits))
                .collect();
            assert!(
                nmse(&found, &expected) < 1e-4,
                "sequence {seq}, unified {unified}"
            );
        }
    }
}

/// A step that went over cells took those of other sequences for its own (ggml-org/llama.cpp#27752): cells of three
/// sequences alternate, in the window and in the tail.
#[test]
fn cells_of_alternating_sequences_do_not_mix_in_the_tail() {
    let backend = backend();
    let model = tiny::model(&backend);
    let texts: Vec<_> = (0..3).map(|seq| some_tokens(40, seq)).collect();
    let params = params(512, 3).kv_unified();
    let mut twins = Twins::new(&model, &params, RollingKv::window_cells(50));
    for position in 0..40 {
        let mut batch = Batch::new();
        for (seq, text) in texts.iter().enumerate() {
            batch.push(text[position], position as i32, &[seq as i32], Output::Yes);
        }
        twins.both(&format!("position {position}"), |context| {
            bits(&outputs(context, &batch, &[0, 1, 2]))
        });
    }
    for (seq, text) in texts.iter().enumerate() {
        let found = twins.append("the next token", seq as i32, &some_tokens(1, 9));
        let mut alone = spilled(&model, &params, RollingKv::window_cells(50));
        alone.append(0, text).expect("the tokens fit");
        alone.append(0, &some_tokens(1, 9)).expect("the tokens fit");
        let expected = alone.last_logits().expect("an output");
        assert!(nmse(&found, expected.values()) < 1e-4, "sequence {seq}");
    }
    twins.assert_spilled("alternating");
}

/// Prompts that do not fit together took cells and kept them (ggml-org/llama.cpp#29090, #23652, #14097): the one that
/// fails fails alone and frees what it took, in both parts.
#[test]
fn sequences_that_do_not_fit_fail_alone_and_free_their_cells() {
    let backend = backend();
    for (name, model) in [
        ("llama", tiny::model(&backend)),
        ("sliding", tiny::sliding(&backend)),
    ] {
        let params = params(1024, 4).kv_unified().swa_full();
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(128));
        for seq in 0..2 {
            twins.append(name, seq, &some_tokens(400, seq as u64));
        }
        for seq in 2..4 {
            for context in [&mut twins.resident, &mut twins.spilled] {
                let error = context
                    .append(seq, &some_tokens(400, seq as u64))
                    .expect_err("there is no room");
                assert!(matches!(error, DecodeError::NoSlot { .. }), "{error}");
                assert_eq!(context.positions(seq).expect("it exists"), None, "{name}");
            }
        }
        twins.append(name, 0, &some_tokens(3, 7));
        twins.append(name, 1, &some_tokens(3, 8));
        twins.both("making room", |context| {
            context.memory().remove(0, ..).is_ok()
        });
        twins.append(name, 3, &some_tokens(400, 3));
        twins.append(name, 1, &some_tokens(3, 9));
        twins.assert_spilled(name);
    }
}

/// Contexts that do not divide evenly over their sequences answered badly (ggml-org/llama.cpp#8935): every stream can be
/// used up to its last cell, and streams do not overlap.
#[test]
fn the_last_cell_of_the_last_stream_can_be_used() {
    let backend = backend();
    let model = tiny::model(&backend);
    for n_ctx in [1000, 1023, 1025] {
        for window in [100, 255, 256, 257] {
            let what = format!("{n_ctx} tokens, window {window}");
            let mut twins = Twins::new(&model, &params(n_ctx, 3), RollingKv::window_cells(window));
            let last = twins.spilled.n_ctx_seq();
            twins.append(&what, 0, &some_tokens(last as usize - 1, 1));
            let before = twins.spilled.read_cell(1, Row::K, 0, last - 2);
            twins.append(&what, 2, &some_tokens(last as usize - 1, 2));
            twins.append(&what, 2, &some_tokens(1, 3));
            let (_, row) = twins.both(&what, |context| {
                let (_, row) = context
                    .read_cell(1, Row::K, 2, last - 1)
                    .expect("the last cell exists");
                ((), row)
            });
            assert!(row.iter().any(|byte| *byte != 0), "{what}: not written");
            assert_eq!(
                before,
                twins.spilled.read_cell(1, Row::K, 0, last - 2),
                "{what}: streams overlap"
            );
            let error = twins
                .spilled
                .append(2, &some_tokens(1, 4))
                .expect_err("the stream is full");
            assert!(matches!(error, DecodeError::NoSlot { .. }), "{error}");
            twins.append(&what, 0, &some_tokens(1, 5));
        }
    }
}

/// One sequence whose positions were wrong made a batch fail for all (ggml-org/llama.cpp#17316, #19901): it is named, and
/// the others go on without it.
#[test]
fn a_bad_position_of_one_sequence_leaves_the_others_as_they_were() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut twins = Twins::new(&model, &params(768, 3), RollingKv::window_cells(64));
    for seq in 0..3 {
        twins.append("a prompt", seq, &some_tokens(90, seq as u64));
    }
    let batch = |second: Option<i32>| {
        let mut batch = Batch::new();
        for seq in 0..3 {
            let position = if seq == 1 { second } else { Some(90) };
            if let Some(position) = position {
                batch.push(some_tokens(1, 5)[0], position, &[seq], Output::Yes);
            }
        }
        batch
    };
    for wrong in [40, 89, 95] {
        let said = twins.both("a wrong position", |context| {
            let before = context.save_state().expect("the state is saved");
            let error = context
                .decode(&batch(Some(wrong)))
                .expect_err("the position is wrong");
            assert!(
                before == context.save_state().expect("the state is saved"),
                "something changed"
            );
            format!("{error:?}")
        });
        assert!(
            said.contains("PositionGap") && said.contains("seq: 1"),
            "{said}"
        );
    }
    twins.both("without it", |context| {
        bits(&outputs(context, &batch(None), &[0, 1]))
    });
    twins.append("the one left out", 1, &some_tokens(2, 6));
    twins.assert_spilled("positions");
}

/// A sequence that is not there ended the process (ggml-org/llama.cpp#14847): refused, and nothing changes in either part.
#[test]
fn sequences_that_are_not_there_are_refused() {
    let backend = backend();
    let model = tiny::model(&backend);
    for n_seq_max in [1, 3] {
        let mut twins = Twins::new(&model, &params(768, n_seq_max), RollingKv::window_cells(64));
        twins.append("a prompt", 0, &some_tokens(100, 1));
        for bad in [-2, -1, n_seq_max as i32, 7, 300, i32::MAX] {
            twins.both("a wrong sequence", |context| {
                let mut memory = context.memory();
                let edits = [
                    memory.remove(bad, ..),
                    memory.copy(0, bad, ..),
                    memory.copy(bad, 0, ..),
                    memory.keep(bad),
                ];
                assert!(edits.iter().all(Result::is_err), "{bad}: {edits:?}");
                let batch = Batch::of(&some_tokens(1, 2), 0, bad);
                let error = context.decode(&batch).expect_err("no such sequence");
                format!("{edits:?} {error:?}")
            });
        }
        twins.append("the next token", 0, &some_tokens(1, 3));
    }
}

/// Four sequences share a prefix of 300 tokens that lies in both parts. Their cells fit only because the prefix is there once.
#[test]
fn many_sequences_share_a_prefix_and_say_what_each_says_alone() {
    const PREFIX: usize = 300;
    const OWN: usize = 50;
    let model = tiny::model(&backend());
    let params = params(512, 4).kv_unified();
    const { assert!(PREFIX + 4 * OWN <= 512 && 4 * (PREFIX + OWN) > 512) };
    let prefix = some_tokens(PREFIX, 1);
    let mut twins = Twins::new(&model, &params, RollingKv::window_cells(96));
    twins.append("the prefix", 0, &prefix);
    for seq in 1..4 {
        twins.both("it is shared", |context| {
            context.memory().copy(0, seq, ..).expect("it is copied");
        });
    }
    for seq in 0..4 {
        let own = some_tokens(OWN, 10 + seq as u64);
        let found = twins.append("its own tokens", seq, &own);
        let mut alone = spilled(&model, &params, RollingKv::window_cells(96));
        let expected = logits_after(&mut alone, 0, &[&prefix[..], &own].concat());
        let distance = nmse(&expected, &found);
        assert!(distance < 1e-5, "sequence {seq}: {distance:e}");
    }
    twins.assert_spilled("a shared prefix");
}
