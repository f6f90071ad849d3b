use rolling_kv::{Batch, ContextParams, Output, OutputError, Token};

use super::decode::params;
use crate::common::{backend, logits_after, nmse, some_tokens, tiny};

#[test]
fn outputs_that_were_not_asked_for_are_refused() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    assert_eq!(context.logits(0).unwrap_err(), OutputError::NothingDecoded);
    assert_eq!(
        context.last_logits().unwrap_err(),
        OutputError::NothingDecoded
    );
    context
        .decode(&Batch::of(&some_tokens(4, 1), 0, 0))
        .unwrap();
    assert_eq!(
        context.logits(0).unwrap_err(),
        OutputError::NotAnOutput { index: 0 }
    );
    assert_eq!(
        context.logits(4).unwrap_err(),
        OutputError::OutOfRange { index: 4, len: 4 }
    );
    assert_eq!(
        context.logits(usize::MAX).unwrap_err(),
        OutputError::OutOfRange {
            index: usize::MAX,
            len: 4
        }
    );
    assert_eq!(
        context.embeddings(3).unwrap_err(),
        OutputError::EmbeddingsOff
    );
    assert_eq!(
        context.sequence_embedding(0).unwrap_err(),
        OutputError::EmbeddingsOff
    );
    assert_eq!(context.logits(3).unwrap().len(), tiny::n_vocab());
}

#[test]
fn a_batch_without_outputs_has_none_to_read() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    let mut batch = Batch::new();
    batch
        .push(Token(5), 0, &[0], Output::No)
        .push(Token(6), 1, &[0], Output::No);
    context.decode(&batch).unwrap();
    assert!(matches!(
        context.last_logits(),
        Err(OutputError::NotAnOutput { .. })
    ));
    assert!(matches!(
        context.logits(1),
        Err(OutputError::NotAnOutput { .. })
    ));
    logits_after(&mut context, 0, &[Token(7)]);
}

#[test]
fn a_failed_batch_leaves_no_output() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    context.append(0, &some_tokens(256, 1)).unwrap();
    assert!(context.last_logits().is_ok());
    assert!(context.append(0, &[Token(5)]).is_err());
    assert_eq!(
        context.last_logits().unwrap_err(),
        OutputError::NothingDecoded
    );
}

#[test]
fn a_batch_gives_what_its_tokens_give_one_by_one() {
    let model = tiny::model(&backend());
    let tokens = some_tokens(40, 4);
    let mut whole = model.context(&params()).unwrap();
    let mut batch = Batch::with_capacity(tokens.len());
    for (position, token) in tokens.iter().enumerate() {
        batch.push(*token, position as i32, &[0], Output::Yes);
    }
    whole.decode(&batch).unwrap();
    let mut single = model.context(&params()).unwrap();
    for (index, token) in tokens.iter().enumerate() {
        let alone = logits_after(&mut single, 0, &[*token]);
        assert!(
            nmse(&alone, &whole.logits(index).unwrap()) < 1e-6,
            "token {index}"
        );
    }
}

#[test]
fn sequences_in_one_batch_give_what_they_give_alone() {
    let model = tiny::model(&backend());
    let (short, long) = (some_tokens(10, 5), some_tokens(120, 6));
    let alone = |tokens: &[Token]| logits_after(&mut model.context(&params()).unwrap(), 0, tokens);
    for params in [
        ContextParams::new(512).n_seq_max(2),
        ContextParams::new(512).n_seq_max(2).kv_unified(),
    ] {
        let mut context = model.context(&params.threads(1).n_ubatch(32)).unwrap();
        let mut batch = Batch::new();
        // Interleaved, so that neither the cells nor the rows are in the order of the batch.
        for position in 0..long.len() {
            batch.push(
                long[position],
                position as i32,
                &[1],
                if position + 1 == long.len() {
                    Output::Yes
                } else {
                    Output::No
                },
            );
            if position < short.len() {
                batch.push(
                    short[position],
                    position as i32,
                    &[0],
                    if position + 1 == short.len() {
                        Output::Yes
                    } else {
                        Output::No
                    },
                );
            }
        }
        context.decode(&batch).unwrap();
        assert!(
            nmse(
                &alone(&short),
                &context.logits(2 * short.len() - 1).unwrap()
            ) < 1e-6
        );
        assert!(nmse(&alone(&long), &context.last_logits().unwrap()) < 1e-6);
    }
}
