use rolling_kv::{RenderSpecial, Sampler, SamplerError, Token};

use super::sampling::{byte, ready, refusal};
use crate::common::{backend, tiny};

#[test]
fn a_grammar_lets_through_only_what_it_produces() {
    let model = tiny::model(&backend());
    let vocab = model.vocab();
    let grammar =
        "root ::= answer \"!\" | [\u{4e00}-\u{9fff}]{2}\nanswer ::= \"yes\" | \"no\" # or else";
    for seed in 0..20 {
        let mut sampler = Sampler::builder()
            .grammar(grammar, "root")
            .random(seed)
            .build(&model)
            .unwrap();
        let mut context = ready(&model);
        let mut bytes = Vec::new();
        loop {
            let token = sampler.sample(&context.last_logits().unwrap()).unwrap();
            if vocab.is_end(token) {
                break;
            }
            bytes.extend(vocab.piece(token, RenderSpecial::No).unwrap());
            context.append(0, &[token]).unwrap();
        }
        let text = String::from_utf8(bytes).expect("the grammar produces whole characters");
        let han = text.chars().count() == 2
            && text.chars().all(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        assert!(han || ["yes!", "no!"].contains(&text.as_str()), "{text:?}");
    }
}

#[test]
fn a_token_that_the_grammar_forbids_is_refused_and_changes_nothing() {
    let model = tiny::model(&backend());
    let mut sampler = Sampler::builder()
        .grammar("root ::= \"yes\"", "root")
        .greedy()
        .build(&model)
        .unwrap();
    let rejected = |done: Result<(), SamplerError>| {
        assert!(
            matches!(done, Err(SamplerError::GrammarRejects { .. })),
            "{done:?}"
        );
    };
    rejected(sampler.accept(byte(b'n')));
    rejected(sampler.accept(Token(tiny::EOS)));
    rejected(sampler.accept(Token(tiny::BOS)));
    for letter in *b"yes" {
        sampler.accept(byte(letter)).unwrap();
    }
    rejected(sampler.accept(byte(b's')));
    sampler
        .accept(Token(tiny::EOS))
        .expect("the text is complete");
    sampler.reset().unwrap();
    let word = (0..model.vocab().len() as i32)
        .find(|token| model.vocab().spelling(Token(*token)).unwrap() == "yes");
    sampler
        .accept(Token(word.unwrap()))
        .expect("one token for the whole word");
}

#[test]
fn a_grammar_that_leaves_no_candidate_says_so() {
    let model = tiny::model(&backend());
    let context = ready(&model);
    let logits = context.last_logits().unwrap();
    let best = model
        .vocab()
        .piece(logits.best(), RenderSpecial::Yes)
        .unwrap();
    let letter = if best.starts_with(b"q") { "x" } else { "q" };
    let grammar = format!("root ::= \"{letter}\"");
    let mut sampler = Sampler::builder()
        .top_k(1)
        .grammar(&grammar, "root")
        .greedy()
        .build(&model)
        .unwrap();
    assert!(matches!(
        sampler.sample(&logits),
        Err(SamplerError::NoCandidate)
    ));
    let mut sampler = Sampler::builder()
        .grammar(&grammar, "root")
        .top_k(1)
        .greedy()
        .build(&model)
        .unwrap();
    assert_eq!(sampler.sample(&logits).unwrap(), byte(letter.as_bytes()[0]));
}

#[test]
fn grammars_that_cannot_be_used_are_refused_with_the_reason() {
    let cases = [
        ("", "empty"),
        ("   \n# only a comment\n", "no rule 'root'"),
        ("root", "expecting ::="),
        ("root ::=", ""),
        ("root ::= \"open", "unexpected end"),
        ("root ::= [a-", "unexpected end"),
        ("root ::= (\"a\"", "expecting ')'"),
        ("root ::= \"a\" )", "expecting newline"),
        ("root ::= other", "'other' is used but not defined"),
        ("other ::= \"a\"", "no rule 'root'"),
        ("root ::= root \"a\" | \"b\"", "left recursion"),
        ("root ::= \"\\q\"", "unknown escape"),
        ("root ::= \"a\"{2,", "expecting"),
        ("root ::= \"a\"{99999999999999999999999}", ""),
        ("root ::= \"a\"{5000}", "repetition"),
        ("root ::= *", ""),
        ("root ::= \"a\0b\"", "NUL"),
        ("root ::= <[99999999999999999999999999]>", ""),
        ("root ::= <nosuchtoken>", "invalid token"),
        ("::= \"a\"", "expecting name"),
    ];
    for (text, reason) in cases {
        if text == "root ::=" {
            // An empty rule is allowed: it produces the empty text.
            Sampler::builder()
                .grammar(text, "root")
                .greedy()
                .build(&tiny::model(&backend()))
                .unwrap();
            continue;
        }
        let error = refusal(Sampler::builder().grammar(text, "root").greedy());
        let SamplerError::Grammar { reason: found } = &error else {
            panic!("{text:?}: {error}")
        };
        assert!(found.contains(reason), "{text:?}: {found}");
    }
}

#[test]
fn deep_and_long_grammars_do_not_exhaust_the_stack() {
    let model = tiny::model(&backend());
    let build = |text: &str| {
        Sampler::builder()
            .grammar(text, "root")
            .greedy()
            .build(&model)
            .map(|_| ())
    };
    let nested = |depth| format!("root ::= {}\"a\"{}", "(".repeat(depth), ")".repeat(depth));
    build(&nested(100)).expect("this depth is allowed");
    assert!(build(&nested(1_000_000 / 2 - 10)).is_err());
    let chain = |len| {
        let mut text: String = (0..len)
            .map(|index| format!("r{index} ::= r{} \"a\"\n", index + 1))
            .collect();
        text.push_str(&format!("r{len} ::= \"b\"\nroot ::= r0\n"));
        text
    };
    build(&chain(4000)).expect("this length is allowed");
    assert!(build(&chain(10_000)).is_err());
    assert!(build(&"x".repeat(2 << 20)).is_err());
}
