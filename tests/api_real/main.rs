//! The API on the small real model, which `cargo xtask test` fetches: what only trained weights can show. Each test
//! prints SKIP when the model is missing.

#[path = "../common/mod.rs"]
mod common;

use std::collections::HashSet;
use std::io::Write;

use common::{backend, fewer_if_slow, nmse, real};
use rolling_kv::{
    AddSpecial, Answer, Batch, ChatMessage, ChatTemplate, Context, ContextParams, FlashAttention,
    KvType, LoadError, Model, ModelParams, Output, ParseSpecial, RenderSpecial, Sampler, Token,
    Utf8Stream, VocabKind,
};

/// One thread: tests run beside each other, and threads that wait for each other want a processor each.
fn params() -> ContextParams {
    ContextParams::new(1024).threads(1)
}

fn tokens(model: &Model, text: &str) -> Vec<Token> {
    model
        .vocab()
        .tokenize(text, AddSpecial::Auto, ParseSpecial::Yes)
        .unwrap()
}

/// Greedy text of at most `count` tokens after `prompt`.
fn continued(
    context: &mut Context<'_>,
    seq: i32,
    prompt: &[Token],
    count: usize,
) -> (Vec<Token>, String) {
    let model = context.model();
    let mut sampler = Sampler::builder().greedy().build(model).unwrap();
    let mut stream = Utf8Stream::new();
    let (mut chosen, mut text) = (Vec::new(), String::new());
    context.append(seq, prompt).unwrap();
    for _ in 0..count {
        let token = sampler.sample(&context.last_logits().unwrap()).unwrap();
        if model.vocab().is_end(token) {
            break;
        }
        text.push_str(&stream.push(&model.vocab().piece(token, RenderSpecial::No).unwrap()));
        chosen.push(token);
        context.append(seq, &[token]).unwrap();
    }
    text.push_str(&stream.finish());
    (chosen, text)
}

fn question(model: &Model, text: &str) -> Vec<Token> {
    let template = ChatTemplate::of(model).unwrap();
    tokens(
        model,
        &template
            .format(&[ChatMessage::user(text)], Answer::Open)
            .unwrap(),
    )
}

#[test]
fn the_model_says_what_it_is() {
    let backend = backend();
    let Some(model) = real::model_or_skip("the_model_says_what_it_is", &backend) else {
        return;
    };
    assert_eq!(
        (
            model.n_layer(),
            model.n_head(),
            model.n_head_kv(),
            model.n_embd()
        ),
        (30, 9, 3, 576)
    );
    assert_eq!((model.n_ctx_train(), model.n_swa()), (8192, 0));
    assert_eq!(
        model.metadata("general.architecture").as_deref(),
        Some("llama")
    );
    assert!(model.chat_template(None).unwrap().contains("<|im_start|>"));
    assert_eq!(
        (model.vocab().kind(), model.vocab().len()),
        (VocabKind::Bpe, 49152)
    );
    assert!(
        !model.has_encoder() && model.has_decoder() && !model.is_recurrent() && !model.is_hybrid()
    );
    assert!(
        (90_000_000..100_000_000).contains(&model.size_bytes()),
        "{}",
        model.size_bytes()
    );
}

#[test]
fn it_knows_the_capital_of_france() {
    let backend = backend();
    let Some(model) = real::model_or_skip("it_knows_the_capital_of_france", &backend) else {
        return;
    };
    let mut context = model.context(&params()).unwrap();
    let (_, text) = continued(
        &mut context,
        0,
        &question(&model, "What is the capital of France?"),
        40,
    );
    assert!(text.contains("Paris"), "{text}");
}

#[test]
fn text_survives_the_vocabulary() {
    let backend = backend();
    let Some(model) = real::model_or_skip("text_survives_the_vocabulary", &backend) else {
        return;
    };
    let texts = [
        "The quick brown fox jumps over the lazy dog.",
        "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{3002}\u{6b63}\u{4f53}",
        "\u{1f600}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{1f1eb}\u{1f1f7}",
        "  leading, trailing  \n\n\ttabs and\r\nbreaks ",
        "\u{0}nul",
    ];
    for text in texts {
        let tokens = model
            .vocab()
            .tokenize(text, AddSpecial::No, ParseSpecial::No)
            .unwrap();
        assert_eq!(
            model
                .vocab()
                .detokenize(&tokens, RenderSpecial::No)
                .unwrap(),
            text.as_bytes(),
            "{text:?}"
        );
        let mut stream = Utf8Stream::new();
        let mut streamed = String::new();
        for token in tokens {
            streamed
                .push_str(&stream.push(&model.vocab().piece(token, RenderSpecial::No).unwrap()));
        }
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, text);
    }
    for bytes in [&b"\xe6\xad"[..], b"\xff", b"a\xf0\x9f"] {
        model
            .vocab()
            .tokenize(bytes, AddSpecial::No, ParseSpecial::Yes)
            .unwrap();
    }
}

#[test]
fn a_megabyte_of_one_word_or_of_spaces_can_be_tokenised() {
    let backend = backend();
    let Some(model) = real::model_or_skip("a_megabyte_of_one_word", &backend) else {
        return;
    };
    for unit in ["a", " ", "7", "\u{4f60}", "!"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let tokens = model
            .vocab()
            .tokenize(&text, AddSpecial::No, ParseSpecial::No)
            .unwrap();
        assert_eq!(
            model
                .vocab()
                .detokenize(&tokens, RenderSpecial::No)
                .unwrap(),
            text.as_bytes()
        );
    }
}

#[test]
fn every_way_to_run_a_prompt_gives_the_same_text() {
    let backend = backend();
    let Some(model) = real::model_or_skip("every_way_to_run_a_prompt", &backend) else {
        return;
    };
    let prompt = tokens(
        &model,
        "Once upon a time, in a small village by the sea, there lived",
    );
    let length = fewer_if_slow(12);
    let (reference, text) = continued(&mut model.context(&params()).unwrap(), 0, &prompt, length);
    assert!(
        reference.iter().collect::<HashSet<_>>().len() > length * 2 / 5,
        "this is a text: {text}"
    );
    for params in [
        params().n_ubatch(3),
        params().n_batch(5).n_ubatch(2),
        params().threads(2),
        params().threads(2).threads_batch(1),
        params().flash_attention(FlashAttention::On),
        params().n_seq_max(4),
        params().n_seq_max(4).kv_unified(),
    ] {
        let mut context = model.context(&params).unwrap();
        let last = context.n_seq_max() as i32 - 1;
        assert_eq!(
            continued(&mut context, last, &prompt, length).0,
            reference,
            "{params:?}"
        );
    }
}

#[test]
fn a_batch_gives_what_its_tokens_give_one_by_one() {
    let backend = backend();
    let Some(model) = real::model_or_skip("a_batch_one_by_one", &backend) else {
        return;
    };
    let prompt = tokens(
        &model,
        "The mitochondria is the powerhouse of the cell, and",
    );
    let mut whole = model.context(&params()).unwrap();
    let mut batch = Batch::new();
    for (position, token) in prompt.iter().enumerate() {
        batch.push(*token, position as i32, &[0], Output::Yes);
    }
    whole.decode(&batch).unwrap();
    let mut single = model.context(&params()).unwrap();
    for (index, token) in prompt.iter().enumerate() {
        single.append(0, &[*token]).unwrap();
        let (alone, together) = (single.last_logits().unwrap(), whole.logits(index).unwrap());
        assert_eq!(alone.best(), together.best(), "token {index}");
        assert!(
            nmse(&alone, &together) < 1e-3,
            "token {index}: {}",
            nmse(&alone, &together)
        );
    }
}

#[test]
fn a_state_goes_on_where_it_was_saved() {
    let backend = backend();
    let Some(model) = real::model_or_skip("a_state_goes_on", &backend) else {
        return;
    };
    let prompt = tokens(
        &model,
        "red, green, blue, red, green, blue, red, green, blue, red, green, blue, red,",
    );
    let length = fewer_if_slow(12);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.rkv");
    for params in [
        params(),
        params().cache_types(KvType::Q8_0, KvType::Q8_0),
        params().flash_attention(FlashAttention::Off),
    ] {
        let mut context = model.context(&params).unwrap();
        context.append(0, &prompt[..prompt.len() - 1]).unwrap();
        let saved = context.save_sequence(0).unwrap();
        context.save_state_file(&file).unwrap();
        let (reference, text) = continued(&mut context, 0, &prompt[prompt.len() - 1..], length);
        assert!(text.contains("green"), "{text}");

        let mut other = model.context(&params).unwrap();
        other.restore_sequence(&saved, 0).unwrap();
        assert_eq!(
            continued(&mut other, 0, &prompt[prompt.len() - 1..], length).0,
            reference
        );
        other.restore_state_file(&file).unwrap();
        assert_eq!(
            continued(&mut other, 0, &prompt[prompt.len() - 1..], length).0,
            reference
        );
    }
}

#[test]
fn a_shift_keeps_the_text_going() {
    let backend = backend();
    let Some(model) = real::model_or_skip("a_shift_keeps_the_text_going", &backend) else {
        return;
    };
    for kv_type in [KvType::Q8_0, KvType::F16]
        .into_iter()
        .take(fewer_if_slow(2))
    {
        let mut context = model
            .context(&params().cache_types(kv_type, KvType::F16))
            .unwrap();
        let story = "The cat sat on the mat. ".repeat(10);
        context.append(0, &tokens(&model, &story)).unwrap();
        let end = *context.positions(0).unwrap().unwrap().end();
        assert!(context.memory().can_shift());
        context.memory().remove(0, 7..49).unwrap();
        context.memory().shift(0, 49.., -42).unwrap();
        assert_eq!(context.positions(0).unwrap(), Some(0..=end - 42));
        let (_, text) = continued(&mut context, 0, &tokens(&model, "The cat sat on the"), 8);
        assert!(text.contains("mat"), "{kv_type}: {text}");
    }
}

#[test]
fn a_grammar_shapes_the_answer() {
    let backend = backend();
    let Some(model) = real::model_or_skip("a_grammar_shapes_the_answer", &backend) else {
        return;
    };
    let mut context = model.context(&params()).unwrap();
    context
        .append(0, &question(&model, "Is Paris the capital of France?"))
        .unwrap();
    let grammar = "root ::= \"{\\\"answer\\\": \" (\"true\" | \"false\") \"}\"";
    let mut sampler = Sampler::builder()
        .grammar(grammar, "root")
        .temperature(0.7)
        .random(1)
        .build(&model)
        .unwrap();
    let mut bytes = Vec::new();
    loop {
        let token = sampler.sample(&context.last_logits().unwrap()).unwrap();
        if model.vocab().is_end(token) {
            break;
        }
        bytes.extend(model.vocab().piece(token, RenderSpecial::No).unwrap());
        context.append(0, &[token]).unwrap();
    }
    let answer: serde_json::Value =
        serde_json::from_slice(&bytes).expect("the grammar produces JSON");
    assert!(answer["answer"].is_boolean(), "{answer}");
}

#[test]
fn two_threads_write_the_same_texts_as_one() {
    let backend = backend();
    let Some(model) = real::model_or_skip("two_threads", &backend) else {
        return;
    };
    let prompts = [
        tokens(&model, "The first ten prime numbers are"),
        tokens(&model, "A recipe for pancakes:"),
    ];
    let write = |prompt: &[Token]| {
        continued(
            &mut model.context(&params().threads(1)).unwrap(),
            0,
            prompt,
            fewer_if_slow(16),
        )
        .0
    };
    let alone: Vec<_> = prompts.iter().map(|prompt| write(prompt)).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = prompts
            .iter()
            .map(|prompt| scope.spawn(|| write(prompt)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn a_cut_copy_of_the_model_is_refused() {
    let backend = backend();
    let Some(path) = real::path_or_skip("a_cut_copy") else {
        return;
    };
    let bytes = std::fs::read(path).unwrap();
    for len in [
        0,
        4,
        100,
        10_000,
        1_000_000,
        bytes.len() / 2,
        bytes.len() - 1,
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes[..len]).unwrap();
        let error = Model::load(&backend, file.path(), &ModelParams::default()).unwrap_err();
        assert!(
            matches!(
                error,
                LoadError::NotGguf { .. } | LoadError::Truncated { .. }
            ),
            "{len}: {error}"
        );
    }
}

#[test]
fn its_state_is_not_a_tiny_models_state() {
    let backend = backend();
    let Some(model) = real::model_or_skip("its_state", &backend) else {
        return;
    };
    let tiny = common::tiny::model(&backend);
    let mut context = model.context(&params()).unwrap();
    context.append(0, &tokens(&model, "Hello")).unwrap();
    let saved = context.save_state().unwrap();
    let error = tiny
        .context(&ContextParams::new(1024))
        .unwrap()
        .restore_state(&saved)
        .unwrap_err();
    assert!(
        matches!(error, rolling_kv::StateError::OtherModel),
        "{error}"
    );
}
