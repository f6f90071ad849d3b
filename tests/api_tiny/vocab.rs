use rolling_kv::{
    AddSpecial, Answer, ChatError, ChatMessage, ChatTemplate, ContextParams, ParseSpecial,
    RenderSpecial, Token, VocabError, VocabKind,
};

use crate::common::tiny::{self, Shape};
use crate::common::{Random, backend, fewer_if_slow, logits_after, some_tokens};

const TEXTS: [&str; 7] = [
    "",
    "hello the a",
    "  two  spaces ",
    "line\nbreak\ttab",
    "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}",
    "a \u{1f600} face and \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} a family",
    "nul \0 byte",
];

#[test]
fn text_becomes_tokens_and_text_again() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    assert_eq!(
        (vocab.kind(), vocab.len() as usize),
        (VocabKind::Spm, tiny::n_vocab())
    );
    for text in TEXTS {
        let tokens = vocab
            .tokenize(text, AddSpecial::No, ParseSpecial::No)
            .unwrap();
        assert_eq!(
            vocab.detokenize(&tokens, RenderSpecial::No).unwrap(),
            text.as_bytes(),
            "{text:?}"
        );
    }
    let with_start = vocab
        .tokenize("a", AddSpecial::Auto, ParseSpecial::No)
        .unwrap();
    assert_eq!(with_start.first().copied(), vocab.bos());
    assert_eq!(vocab.bos(), Some(Token(tiny::BOS)));
    assert_eq!(vocab.eos(), Some(Token(tiny::EOS)));
    assert!(
        vocab.adds_bos() && vocab.is_end(Token(tiny::EOS)) && vocab.is_control(Token(tiny::BOS))
    );
    assert!(!vocab.is_end(Token(5)) && !vocab.is_control(Token(5)));
}

#[test]
fn any_bytes_can_be_tokenised() {
    let backend = backend();
    let models = [
        tiny::model(&backend),
        tiny::finish(
            tiny::describe_byte_pairs(&Shape::default(), "default"),
            &backend,
            1,
        ),
        tiny::finish(
            tiny::describe_byte_pairs(&Shape::default(), "llama-bpe"),
            &backend,
            1,
        ),
    ];
    for model in &models {
        let vocab = model.vocab();
        for bytes in [
            &b"\xe6\xad"[..],
            b"\xff\xfe\xfd",
            b"ok \xf0\x9f\x98",
            b"\x80",
            b"\xc0\x80",
            b"\xed\xa0\x80",
        ] {
            let tokens = vocab
                .tokenize(bytes, AddSpecial::No, ParseSpecial::Yes)
                .unwrap();
            vocab.detokenize(&tokens, RenderSpecial::Yes).unwrap();
        }
        for seed in 0..fewer_if_slow(300) as u64 {
            let mut random = Random::new(seed);
            let bytes: Vec<u8> = (0..random.below(40))
                .map(|_| random.next_u64() as u8)
                .collect();
            vocab
                .tokenize(&bytes, AddSpecial::Auto, ParseSpecial::Yes)
                .unwrap();
        }
    }
}

#[test]
fn special_text_becomes_a_special_token_only_when_asked() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    let tokens = |parse| vocab.tokenize("</s>", AddSpecial::No, parse).unwrap();
    assert_eq!(tokens(ParseSpecial::Yes), [Token(tiny::EOS)]);
    assert!(!tokens(ParseSpecial::No).contains(&Token(tiny::EOS)));
    assert_eq!(
        vocab.piece(Token(tiny::EOS), RenderSpecial::Yes).unwrap(),
        b"</s>"
    );
    assert_eq!(
        vocab.piece(Token(tiny::EOS), RenderSpecial::No).unwrap(),
        b""
    );
}

#[test]
fn tokens_out_of_range_are_refused() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    for bad in [-1, -2, vocab.len() as i32, i32::MAX, i32::MIN] {
        let refused = |error: VocabError| matches!(error, VocabError::TokenOutOfRange { token, .. } if token == bad);
        assert!(refused(
            vocab.piece(Token(bad), RenderSpecial::Yes).unwrap_err()
        ));
        assert!(refused(vocab.spelling(Token(bad)).unwrap_err()));
        assert!(refused(
            vocab
                .detokenize(&[Token(5), Token(bad)], RenderSpecial::Yes)
                .unwrap_err()
        ));
        assert!(
            !vocab.is_end(Token(bad)) && !vocab.is_control(Token(bad)) && !vocab.has(Token(bad))
        );
    }
}

#[test]
fn pieces_of_a_character_join_to_the_character() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    for character in ["\u{4f60}", "\u{1f600}"] {
        let tokens = vocab
            .tokenize(character, AddSpecial::No, ParseSpecial::No)
            .unwrap();
        assert!(tokens.len() > 1, "{character} is several byte tokens");
        let mut stream = rolling_kv::Utf8Stream::new();
        let mut text = String::new();
        for token in tokens {
            text.push_str(&stream.push(&vocab.piece(token, RenderSpecial::No).unwrap()));
        }
        text.push_str(&stream.finish());
        assert_eq!(text.trim_start(), character);
    }
}

#[test]
fn long_runs_do_not_exhaust_the_stack() {
    let backend = backend();
    let len = fewer_if_slow(60_000);
    for patterns in [
        "default",
        "deepseek-llm",
        "llama-bpe",
        "gpt-2",
        "smollm",
        "falcon",
        "chatglm-bpe",
    ] {
        let model = tiny::finish(
            tiny::describe_byte_pairs(&Shape::default(), patterns),
            &backend,
            1,
        );
        for (name, unit) in [
            ("letters", "a"),
            ("spaces", " "),
            ("digits", "7"),
            ("marks", "!"),
            ("han", "\u{4f60}"),
            ("breaks", "\n"),
        ] {
            println!("{patterns} {name}");
            let text = unit.repeat(len / unit.len());
            let tokens = model
                .vocab()
                .tokenize(&text, AddSpecial::No, ParseSpecial::No)
                .unwrap();
            assert_eq!(
                tokens.len(),
                text.len(),
                "{patterns} {name}: one token per byte"
            );
        }
    }
}

#[test]
fn texts_beyond_the_limits_are_refused() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    let error = vocab
        .tokenize("x".repeat((1 << 20) + 1), AddSpecial::No, ParseSpecial::No)
        .unwrap_err();
    assert!(matches!(error, VocabError::RunTooLong { .. }), "{error}");
    let error = vocab
        .tokenize("x ".repeat(33 << 20), AddSpecial::No, ParseSpecial::No)
        .unwrap_err();
    assert!(matches!(error, VocabError::TextTooLong { .. }), "{error}");
}

#[test]
fn a_model_without_a_vocabulary_runs_on_numbers() {
    let description = tiny::describe_without_vocabulary(&Shape::default())
        .text("tokenizer.ggml.model", "no_vocab")
        .u32("llama.vocab_size", 64);
    let model = tiny::finish(description, &backend(), 1);
    let vocab = model.vocab();
    assert_eq!((vocab.kind(), vocab.len()), (VocabKind::None, 64));
    let none = |error: VocabError| matches!(error, VocabError::NoVocabulary);
    assert!(none(
        vocab
            .tokenize("a", AddSpecial::Auto, ParseSpecial::No)
            .unwrap_err()
    ));
    assert!(none(vocab.piece(Token(1), RenderSpecial::Yes).unwrap_err()));
    assert!(none(
        vocab
            .detokenize(&[Token(1)], RenderSpecial::Yes)
            .unwrap_err()
    ));
    assert!(none(vocab.spelling(Token(1)).unwrap_err()));
    assert_eq!(
        (
            vocab.bos(),
            vocab.is_end(Token(1)),
            vocab.is_control(Token(1))
        ),
        (None, false, false)
    );
    let mut context = model.context(&ContextParams::new(256).threads(1)).unwrap();
    assert_eq!(
        logits_after(&mut context, 0, &[Token(63), Token(1)]).len(),
        64
    );
    assert!(
        context.append(0, &some_tokens(100, 1)).is_err(),
        "some of these are beyond 64"
    );
    let error = rolling_kv::Sampler::builder()
        .grammar("root ::= \"a\"", "root")
        .greedy()
        .build(&model)
        .unwrap_err();
    assert!(
        matches!(error, rolling_kv::SamplerError::NoVocabulary),
        "{error}"
    );
}

#[test]
fn a_conversation_is_laid_out_as_the_model_asks() {
    let chatml = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}{% endfor %}";
    let description = tiny::describe(&Shape::default()).text("tokenizer.chat_template", chatml);
    let model = tiny::finish(description, &backend(), 1);
    let template = ChatTemplate::of(&model).unwrap();
    let messages = [
        ChatMessage::system("Be brief."),
        ChatMessage::user("\u{4f60}\u{597d}"),
        ChatMessage::assistant("Hi."),
    ];
    let text = template.format(&messages, Answer::Open).unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n\u{4f60}\u{597d}<|im_end|>\n\
         <|im_start|>assistant\nHi.<|im_end|>\n<|im_start|>assistant\n"
    );
    assert!(
        !template
            .format(&messages, Answer::NotYet)
            .unwrap()
            .ends_with("assistant\n")
    );
    let long = [ChatMessage::user("x".repeat(100_000))];
    assert!(template.format(&long, Answer::NotYet).unwrap().len() > 100_000);
}

#[test]
fn conversations_that_cannot_be_laid_out_are_refused() {
    let model = tiny::model(&backend());
    assert!(matches!(
        ChatTemplate::of(&model),
        Err(ChatError::NoTemplate)
    ));
    let unknown = ChatTemplate::named("{{ something else }}").unwrap();
    let message = [ChatMessage::user("hello")];
    assert!(matches!(
        unknown.format(&message, Answer::Open),
        Err(ChatError::UnsupportedTemplate)
    ));
    assert!(matches!(
        ChatTemplate::named("a\0b"),
        Err(ChatError::UnsupportedTemplate)
    ));
    let names = ChatTemplate::builtin_names();
    assert!(names.contains(&"chatml".to_owned()), "{names:?}");
    for name in names {
        let template = ChatTemplate::named(&name).unwrap();
        // Some templates need particular roles; none may do more than refuse.
        let _ = template.format(&message, Answer::Open);
        let _ = template.format(&[], Answer::Open);
        let _ = template.format(&[ChatMessage::new("stranger", "")], Answer::Open);
    }
    let chatml = ChatTemplate::named("chatml").unwrap();
    for (messages, what) in [
        ([ChatMessage::new("a\0", "b")], "role"),
        ([ChatMessage::new("a", "\0")], "content"),
    ] {
        let error = chatml.format(&messages, Answer::Open).unwrap_err();
        assert!(
            matches!(error, ChatError::Nul { what: found, index: 0 } if found == what),
            "{error}"
        );
    }
}
