use rolling_kv::{
    Batch, ContextError, ContextParams, DecodeError, Model, OutputError, Pooling, SequenceError,
    StateError, Token,
};

use crate::common::{backend, nmse, some_tokens, tiny};

fn params() -> ContextParams {
    ContextParams::new(256).threads(1)
}

#[test]
fn an_encoder_gives_one_embedding_per_sequence() {
    let model = tiny::encoder(&backend());
    let mut context = model.context(&params().embeddings().n_seq_max(2)).unwrap();
    assert_eq!(context.pooling(), Pooling::Mean);
    let mut batch = Batch::of(&some_tokens(5, 1), 0, 0);
    batch.extend(&some_tokens(7, 2), 0, 1);
    context.decode(&batch).unwrap();
    let (first, second) = (
        context.sequence_embedding(0).unwrap().to_vec(),
        context.sequence_embedding(1).unwrap(),
    );
    assert_eq!(first.len(), model.n_embd_out() as usize);
    assert!(
        nmse(&first, second) > 1e-3,
        "different texts have different embeddings"
    );
    assert_eq!(
        context.sequence_embedding(7).unwrap_err(),
        OutputError::NoSuchSequence { seq: 7 }
    );
    assert_eq!(
        context.sequence_embedding(-1).unwrap_err(),
        OutputError::NoSuchSequence { seq: -1 }
    );
    assert_eq!(context.embeddings(0).unwrap_err(), OutputError::Pooled);
    assert_eq!(context.logits(0).unwrap_err(), OutputError::NoLogits);
}

#[test]
fn an_encoder_needs_its_batch_in_one_ubatch() {
    let model = tiny::encoder(&backend());
    let mut context = model.context(&params().embeddings().n_ubatch(8)).unwrap();
    let error = context
        .decode(&Batch::of(&some_tokens(9, 1), 0, 0))
        .unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::NonCausalTooLarge {
                tokens: 9,
                n_ubatch: 8
            }
        ),
        "{error}"
    );
    context
        .decode(&Batch::of(&some_tokens(8, 1), 0, 0))
        .unwrap();
}

#[test]
fn an_encoder_keeps_nothing_to_edit_or_save() {
    let model = tiny::encoder(&backend());
    let mut context = model.context(&params().embeddings()).unwrap();
    context
        .decode(&Batch::of(&some_tokens(8, 1), 0, 0))
        .unwrap();
    assert_eq!(context.positions(0).unwrap(), None);
    assert!(matches!(
        context.memory().clear(),
        Err(SequenceError::NoMemory)
    ));
    assert!(matches!(
        context.memory().remove(0, ..),
        Err(SequenceError::NoMemory)
    ));
    assert!(matches!(
        context.memory().shift(0, .., 1),
        Err(SequenceError::NoMemory)
    ));
    assert!(!context.memory().can_shift());
    assert!(matches!(
        context.save_state(),
        Err(StateError::Sequence(SequenceError::NoMemory))
    ));
    assert!(matches!(
        context.save_sequence(0),
        Err(StateError::Sequence(SequenceError::NoMemory))
    ));
}

fn poolings() -> [Pooling; 4] {
    [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last]
}

#[test]
fn a_causal_model_pools_as_asked() {
    let model = tiny::model(&backend());
    for pooling in poolings() {
        let mut context = model
            .context(&params().embeddings().pooling(pooling))
            .unwrap();
        context
            .decode(&Batch::of(&some_tokens(6, 1), 0, 0))
            .unwrap();
        if pooling == Pooling::None {
            assert_eq!(context.embeddings(2).unwrap().len(), 64);
            assert_eq!(
                context.sequence_embedding(0).unwrap_err(),
                OutputError::NotPooled
            );
        } else {
            assert_eq!(context.sequence_embedding(0).unwrap().len(), 64);
        }
        assert_eq!(context.logits(5).unwrap().len(), tiny::n_vocab());
    }
}

#[test]
fn pooled_embeddings_need_the_batch_in_one_ubatch() {
    let model = tiny::model(&backend());
    for pooling in poolings() {
        let mut context = model
            .context(&params().embeddings().pooling(pooling).n_ubatch(8))
            .unwrap();
        let done = context.decode(&Batch::of(&some_tokens(9, 1), 0, 0));
        match pooling {
            Pooling::None => done.expect("per token there is nothing to pool"),
            _ => assert!(matches!(
                done,
                Err(DecodeError::PooledTooLarge {
                    tokens: 9,
                    n_ubatch: 8
                })
            )),
        }
    }
}

#[test]
fn a_model_without_an_encoder_does_not_encode() {
    let model = tiny::model(&backend());
    let mut context = model.context(&params()).unwrap();
    let error = context
        .encode(&Batch::of(&some_tokens(3, 1), 0, 0))
        .unwrap_err();
    assert!(matches!(error, DecodeError::NoEncoder), "{error}");
}

fn start(model: &Model) -> Token {
    model
        .vocab()
        .decoder_start()
        .expect("the model says what its answer begins with")
}

#[test]
fn a_decoder_waits_for_its_encoder() {
    let model = tiny::encoder_decoder(&backend());
    assert!(model.has_encoder() && model.has_decoder());
    let mut context = model.context(&params()).unwrap();
    let error = context
        .decode(&Batch::of(&[start(&model)], 0, 0))
        .unwrap_err();
    assert!(matches!(error, DecodeError::NotEncoded), "{error}");
    context
        .encode(&Batch::of(&some_tokens(9, 1), 0, 0))
        .unwrap();
    context.decode(&Batch::of(&[start(&model)], 0, 0)).unwrap();
    let first = context.last_logits().unwrap().to_vec();

    context.memory().clear().unwrap();
    context
        .encode(&Batch::of(&some_tokens(4, 2), 0, 0))
        .unwrap();
    context.decode(&Batch::of(&[start(&model)], 0, 0)).unwrap();
    assert!(
        nmse(&first, &context.last_logits().unwrap()) > 1e-3,
        "the answer depends on what was encoded"
    );
}

#[test]
fn an_encoder_batch_larger_than_a_ubatch_is_refused() {
    let model = tiny::encoder_decoder(&backend());
    let mut context = model.context(&params().n_ubatch(8)).unwrap();
    let error = context
        .encode(&Batch::of(&some_tokens(9, 1), 0, 0))
        .unwrap_err();
    assert!(
        matches!(error, DecodeError::NonCausalTooLarge { .. }),
        "{error}"
    );
}

#[test]
fn an_encoder_decoder_with_separate_sequences_is_refused() {
    let model = tiny::encoder_decoder(&backend());
    let error = model.context(&params().n_seq_max(2)).unwrap_err();
    assert!(
        matches!(error, ContextError::EncoderNeedsUnified { n_seq_max: 2 }),
        "{error}"
    );
    let mut context = model.context(&params().n_seq_max(2).kv_unified()).unwrap();
    context
        .encode(&Batch::of(&some_tokens(4, 2), 0, 1))
        .unwrap();
    context.decode(&Batch::of(&[start(&model)], 0, 1)).unwrap();
}

#[test]
fn regression_a_position_that_was_not_learned_is_an_error_and_not_the_end_of_the_process() {
    let backend = backend();
    let shape = tiny::Shape {
        architecture: "gpt2",
        n_head_kv: 2,
        n_ctx_train: 64,
        ..tiny::Shape::default()
    };
    let decoder = tiny::finish(tiny::describe(&shape), &backend, 1);
    let mut context = decoder.context(&params()).unwrap();
    let text = some_tokens(64, 1);
    context.append(0, &text).expect("every position is learned");
    let error = context.append(0, &text[..1]).unwrap_err();
    assert!(error.to_string().contains("positions 0..64"), "{error}");
    context.memory().remove(0, 60..).expect("removed");
    context
        .append(0, &text[..4])
        .expect("and the context goes on");

    let encoder = tiny::encoder(&backend);
    let mut context = encoder
        .context(&ContextParams::new(1024).n_ubatch(1024).embeddings())
        .unwrap();
    let long = Batch::of(&some_tokens(600, 1), 0, 0);
    assert!(matches!(
        context.decode(&long).unwrap_err(),
        DecodeError::PositionNotLearned {
            index: 512,
            pos: 512,
            n_positions: 512
        }
    ));
}
