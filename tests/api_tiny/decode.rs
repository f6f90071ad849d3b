use rolling_kv::{Batch, Context, ContextParams, DecodeError, Output, Token};

use crate::common::{backend, logits_after, nmse, some_tokens, tiny};

pub fn params() -> ContextParams {
    ContextParams::new(256).threads(1)
}

/// Checks that the context still works, with the same result as an untouched one.
fn still_works(context: &mut Context<'_>) {
    let tokens = some_tokens(6, 9);
    context.memory().clear().unwrap();
    let logits = logits_after(context, 0, &tokens);
    let fresh = logits_after(&mut context.model().context(&params()).unwrap(), 0, &tokens);
    assert!(nmse(&fresh, &logits) < 1e-6);
}

fn refusal(context: &mut Context<'_>, batch: &Batch) -> DecodeError {
    let before: Vec<_> = (0..context.n_seq_max() as i32)
        .map(|seq| context.positions(seq).unwrap())
        .collect();
    let error = context.decode(batch).expect_err("the batch is refused");
    for (seq, positions) in before.into_iter().enumerate() {
        assert_eq!(
            context.positions(seq as i32).unwrap(),
            positions,
            "sequence {seq} is as it was"
        );
    }
    error
}

#[test]
fn an_empty_batch_is_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    assert!(matches!(
        refusal(&mut context, &Batch::new()),
        DecodeError::EmptyBatch
    ));
    assert!(matches!(
        context.append(0, &[]),
        Err(DecodeError::EmptyBatch)
    ));
    still_works(&mut context);
}

#[test]
fn a_batch_larger_than_n_batch_is_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_batch(64)).unwrap();
    let error = refusal(&mut context, &Batch::of(&some_tokens(65, 1), 0, 0));
    assert!(
        matches!(
            error,
            DecodeError::BatchTooLarge {
                tokens: 65,
                n_batch: 64
            }
        ),
        "{error}"
    );
    context
        .append(0, &some_tokens(65, 1))
        .expect("append cuts it");
    still_works(&mut context);
}

#[test]
fn tokens_out_of_range_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    let n_vocab = model.vocab().len() as i32;
    for bad in [-1, -2, n_vocab, i32::MAX, i32::MIN] {
        let batch = Batch::of(&[Token(5), Token(bad)], 0, 0);
        let error = refusal(&mut context, &batch);
        assert!(
            matches!(error, DecodeError::TokenOutOfRange { index: 1, token, .. } if token == bad),
            "{error}"
        );
    }
    still_works(&mut context);
}

#[test]
fn sequences_out_of_range_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    for bad in [2, 7, 300, -1, -2, i32::MIN] {
        let error = refusal(&mut context, &Batch::of(&[Token(5)], 0, bad));
        assert!(
            matches!(error, DecodeError::SequenceOutOfRange { seq, n_seq_max: 2, .. } if seq == bad),
            "{error}"
        );
        assert!(matches!(
            context.append(bad, &[Token(5)]),
            Err(DecodeError::SequenceOutOfRange { .. })
        ));
    }
    still_works(&mut context);
}

#[test]
fn a_token_in_no_sequence_or_twice_in_one_is_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    let mut batch = Batch::new();
    batch.push(Token(5), 0, &[], Output::Yes);
    assert!(matches!(
        refusal(&mut context, &batch),
        DecodeError::NoSequence { index: 0 }
    ));
    batch.clear();
    batch.push(Token(5), 0, &[1, 0, 1], Output::Yes);
    assert!(matches!(
        refusal(&mut context, &batch),
        DecodeError::SequenceTwice { seq: 1, .. }
    ));
    still_works(&mut context);
}

#[test]
fn a_shared_token_needs_one_buffer() {
    let model = tiny::model(&backend());
    let mut batch = Batch::new();
    batch.push(Token(5), 0, &[0, 1], Output::Yes);
    let mut apart = model.context(&params().n_seq_max(2)).unwrap();
    let error = refusal(&mut apart, &batch);
    assert!(
        matches!(
            error,
            DecodeError::SharedTokenNeedsUnified { n_seqs: 2, .. }
        ),
        "{error}"
    );
    still_works(&mut apart);

    let mut unified = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    unified.decode(&batch).unwrap();
    assert_eq!(unified.positions(1).unwrap(), Some(0..=0));
}

#[test]
fn positions_out_of_range_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    for bad in [-1, i32::MIN, i32::MAX] {
        let error = refusal(&mut context, &Batch::of(&[Token(5)], bad, 0));
        assert!(
            matches!(error, DecodeError::PositionOutOfRange { pos, .. } if pos == bad),
            "{error}"
        );
    }
    let error = refusal(
        &mut context,
        &Batch::of(&some_tokens(4, 1), i32::MAX - 2, 0),
    );
    assert!(
        matches!(error, DecodeError::PositionOutOfRange { index: 2, .. }),
        "{error}"
    );
    context
        .decode(&Batch::of(&[Token(5)], i32::MAX - 1, 0))
        .expect("the last position can be used");
    assert!(matches!(
        context.append(0, &[Token(5)]),
        Err(DecodeError::PositionOutOfRange { .. })
    ));
    still_works(&mut context);
}

#[test]
fn positions_must_follow_each_other() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(4, 1)).unwrap();
    for bad in [0, 3, 5, 100] {
        let error = refusal(&mut context, &Batch::of(&[Token(5)], bad, 0));
        assert!(
            matches!(error, DecodeError::PositionGap { seq: 0, expected: 4, found, .. } if found == bad),
            "{error}"
        );
    }
    let mut gap = Batch::of(&some_tokens(2, 1), 4, 0);
    gap.push(Token(5), 7, &[0], Output::Yes);
    assert!(matches!(
        refusal(&mut context, &gap),
        DecodeError::PositionGap {
            index: 2,
            expected: 6,
            found: 7,
            ..
        }
    ));
    let mut twice = Batch::of(&some_tokens(2, 1), 4, 0);
    twice.push(Token(5), 5, &[0], Output::Yes);
    assert!(matches!(
        refusal(&mut context, &twice),
        DecodeError::PositionGap { .. }
    ));
    still_works(&mut context);
}

#[test]
fn what_llama_cpp_alone_can_judge_comes_back_as_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_seq_max(3).kv_unified()).unwrap();
    // Two sequences that have grown apart cannot share a token.
    context.append(0, &some_tokens(3, 1)).unwrap();
    context.append(1, &some_tokens(2, 1)).unwrap();
    context.memory().shift(1, .., 1).unwrap();
    let mut batch = Batch::new();
    batch.push(Token(5), 3, &[0, 1], Output::Yes);
    let error = refusal(&mut context, &batch);
    let DecodeError::Refused(failure) = error else {
        panic!("{error}")
    };
    assert!(failure.text().contains("coupled"), "{failure}");
    still_works(&mut context);
}

#[test]
fn a_full_cache_says_so_and_keeps_what_it_has() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(250, 1)).unwrap();
    let error = refusal(&mut context, &Batch::of(&some_tokens(7, 2), 250, 0));
    assert!(
        matches!(error, DecodeError::NoSlot { tokens: 7 }),
        "{error}"
    );
    context
        .append(0, &some_tokens(6, 2))
        .expect("the last cell can be used");
    assert!(matches!(
        context.append(0, &[Token(5)]),
        Err(DecodeError::NoSlot { .. })
    ));
    still_works(&mut context);
}

#[test]
fn an_append_that_fails_half_way_leaves_nothing_behind() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params().n_batch(16)).unwrap();
    context.append(0, &some_tokens(200, 1)).unwrap();
    let error = context.append(0, &some_tokens(100, 2)).unwrap_err();
    assert!(matches!(error, DecodeError::NoSlot { .. }), "{error}");
    assert_eq!(context.positions(0).unwrap(), Some(0..=199));
    let bad_end = [some_tokens(20, 3), vec![Token(-1)]].concat();
    assert!(matches!(
        context.append(0, &bad_end),
        Err(DecodeError::TokenOutOfRange { .. })
    ));
    assert_eq!(context.positions(0).unwrap(), Some(0..=199));
}

#[test]
fn oversubscribed_sequences_fail_one_by_one_and_free_what_they_took() {
    let model = tiny::model(&backend());
    let mut context = model
        .context(
            &ContextParams::new(1024)
                .threads(1)
                .n_seq_max(4)
                .kv_unified(),
        )
        .unwrap();
    let tokens = some_tokens(400, 1);
    let done: Vec<bool> = (0..4)
        .map(|seq| context.append(seq, &tokens).is_ok())
        .collect();
    assert_eq!(done, [true, true, false, false]);
    assert_eq!(context.positions(2).unwrap(), None);
    let one_more = logits_after(&mut context, 0, &[Token(5)]);
    let alone = {
        let mut context = model.context(&ContextParams::new(1024).threads(1)).unwrap();
        context.append(0, &tokens).unwrap();
        logits_after(&mut context, 0, &[Token(5)])
    };
    assert!(nmse(&alone, &one_more) < 1e-6);
    context.memory().remove(1, ..).unwrap();
    context
        .append(2, &tokens)
        .expect("the freed cells can be used");
}

#[test]
fn a_run_can_be_aborted_and_the_next_one_works() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(3, 1)).unwrap();
    let handle = context.abort_handle();
    handle.abort();
    assert!(matches!(
        context.append(0, &some_tokens(3, 2)),
        Err(DecodeError::Aborted)
    ));
    assert_eq!(context.positions(0).unwrap(), Some(0..=2));
    context
        .append(0, &some_tokens(3, 2))
        .expect("one call stops one run");
    drop(context);
    handle.abort();
}

#[test]
fn an_abort_in_the_middle_of_a_run_rolls_it_back() {
    let model = tiny::model(&backend());
    // One token at a time, so that the abort finds some of the batch done.
    let params = ContextParams::new(2048).threads(1).n_ubatch(1);
    let mut context = model.context(&params).unwrap();
    context.append(0, &some_tokens(3, 1)).unwrap();
    let handle = context.abort_handle();
    let tokens = some_tokens(crate::common::fewer_if_slow(1500).max(200), 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            handle.abort();
        });
        let error = context
            .append(0, &tokens)
            .expect_err("the run takes longer than the wait");
        assert!(matches!(error, DecodeError::Aborted), "{error}");
    });
    assert_eq!(
        context.positions(0).unwrap(),
        Some(0..=2),
        "no token of the aborted run is left"
    );
    let after = logits_after(&mut context, 0, &[Token(9)]);
    let mut fresh = model.context(&params).unwrap();
    fresh.append(0, &some_tokens(3, 1)).unwrap();
    assert!(nmse(&logits_after(&mut fresh, 0, &[Token(9)]), &after) < 1e-6);
}

#[test]
fn tokens_with_several_positions_may_jump_forward_only() {
    let model = tiny::many_positions(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(4, 1)).unwrap();
    let error = context.decode(&Batch::of(&[Token(5)], 3, 0)).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::PositionGap {
                expected: 4,
                found: 3,
                ..
            }
        ),
        "{error}"
    );
    context
        .decode(&Batch::of(&[Token(5)], 10, 0))
        .expect("a jump forward is allowed");
    assert_eq!(
        context.positions(0).unwrap().map(|held| *held.end()),
        Some(10)
    );
}

#[test]
fn a_recurrent_model_does_not_share_tokens() {
    let model = tiny::recurrent(&backend());
    let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    let mut batch = Batch::new();
    batch.push(Token(5), 0, &[0, 1], Output::Yes);
    assert!(matches!(
        refusal(&mut context, &batch),
        DecodeError::SharedTokenNeedsUnified { .. }
    ));
}
