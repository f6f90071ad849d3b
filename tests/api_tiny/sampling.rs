use rolling_kv::{
    Context, ContextParams, Model, Penalties, Sampler, SamplerBuilder, SamplerError, Token,
};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, some_tokens};

pub fn ready(model: &Model) -> Context<'_> {
    let mut context = model.context(&ContextParams::new(512).threads(1)).unwrap();
    context.append(0, &some_tokens(8, 1)).unwrap();
    context
}

pub fn refusal(builder: SamplerBuilder) -> SamplerError {
    builder
        .build(&tiny::model(&backend()))
        .map(|_| ())
        .unwrap_err()
}

/// A run of tokens chosen one after the other.
fn run(model: &Model, builder: SamplerBuilder, count: usize) -> Vec<Token> {
    let mut sampler = builder.build(model).unwrap();
    let mut context = ready(model);
    (0..count)
        .map(|_| {
            let token = sampler.sample(&context.last_logits().unwrap()).unwrap();
            context.append(0, &[token]).unwrap();
            token
        })
        .collect()
}

#[test]
fn a_chain_must_end_with_the_step_that_chooses() {
    assert!(matches!(
        refusal(Sampler::builder()),
        SamplerError::NoSelector
    ));
    assert!(matches!(
        refusal(Sampler::builder().top_k(5)),
        SamplerError::NoSelector
    ));
    let error = refusal(Sampler::builder().top_k(5).greedy().temperature(1.0));
    assert!(
        matches!(error, SamplerError::AfterSelector { index: 2 }),
        "{error}"
    );
    assert!(matches!(
        refusal(Sampler::builder().greedy().random(1)),
        SamplerError::AfterSelector { index: 1 }
    ));
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let begin = Sampler::builder;
    let penalties = |change: fn(&mut Penalties)| {
        let mut penalties = Penalties::default();
        change(&mut penalties);
        begin().penalties(penalties)
    };
    let cases = [
        (begin().temperature(-0.1), "temperature"),
        (begin().temperature(f32::NAN), "temperature"),
        (begin().temperature(f32::INFINITY), "temperature"),
        (begin().top_p(0.0), "top_p"),
        (begin().top_p(1.1), "top_p"),
        (begin().top_p(f32::NAN), "top_p"),
        (begin().min_p(-0.1), "min_p"),
        (begin().min_p(1.5), "min_p"),
        (begin().min_p(f32::NAN), "min_p"),
        (
            penalties(|penalties| penalties.repeat = 0.0),
            "penalty repeat",
        ),
        (
            penalties(|penalties| penalties.repeat = f32::NAN),
            "penalty repeat",
        ),
        (
            penalties(|penalties| penalties.frequency = f32::INFINITY),
            "penalty frequency",
        ),
        (
            penalties(|penalties| penalties.presence = f32::NAN),
            "penalty presence",
        ),
        (
            penalties(|penalties| penalties.last_n = u32::MAX),
            "penalty last_n",
        ),
        (begin().bias(&[(Token(1), f32::NAN)]), "bias"),
        (begin().bias(&[(Token(1), f32::INFINITY)]), "bias"),
    ];
    for (builder, name) in cases {
        let error = refusal(builder.greedy());
        assert!(
            matches!(error, SamplerError::BadNumber { option, .. } if option == name),
            "{name}: {error}"
        );
    }
    let error = refusal(begin().random(u32::MAX));
    assert!(
        matches!(error, SamplerError::BadNumber { option: "seed", .. }),
        "{error}"
    );
}

#[test]
fn a_bias_for_a_foreign_token_is_refused() {
    for bad in [-1, -5, tiny::n_vocab() as i32, i32::MAX, i32::MIN] {
        let error = refusal(
            Sampler::builder()
                .bias(&[(Token(1), 1.0), (Token(bad), 1.0)])
                .greedy(),
        );
        assert!(
            matches!(error, SamplerError::TokenOutOfRange { token, .. } if token == bad),
            "{error}"
        );
    }
}

#[test]
fn top_k_of_zero_keeps_all() {
    let model = tiny::model(&backend());
    let all = run(&model, Sampler::builder().random(5), 30);
    assert_eq!(all, run(&model, Sampler::builder().top_k(0).random(5), 30));
    assert_eq!(
        all,
        run(
            &model,
            Sampler::builder().top_p(1.0).min_p(0.0).random(5),
            30
        )
    );
    assert_ne!(all, run(&model, Sampler::builder().top_k(2).random(5), 30));
}

#[test]
fn one_candidate_is_the_likeliest() {
    let model = tiny::model(&backend());
    let greedy = run(&model, Sampler::builder().greedy(), 20);
    let best = {
        let mut context = ready(&model);
        (0..20)
            .map(|_| {
                let token = context.last_logits().unwrap().best();
                context.append(0, &[token]).unwrap();
                token
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(greedy, best);
    for one in [
        Sampler::builder().top_k(1).random(3),
        Sampler::builder().temperature(0.0).random(3),
        Sampler::builder().min_p(1.0).random(3),
        Sampler::builder().top_p(1e-6).random(3),
        Sampler::builder().temperature(1e-30).greedy(),
    ] {
        assert_eq!(greedy, run(&model, one, 20));
    }
}

#[test]
fn a_seed_repeats_and_another_one_does_not() {
    let model = tiny::model(&backend());
    let of = |seed| {
        run(
            &model,
            Sampler::builder().top_k(50).temperature(1.5).random(seed),
            40,
        )
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    assert_eq!(
        run(&model, Sampler::builder().random_unseeded(), 5).len(),
        5
    );
}

#[test]
fn penalties_push_away_what_was_accepted() {
    let model = tiny::model(&backend());
    let context = ready(&model);
    let logits = context.last_logits().unwrap();
    let best = logits.best();
    let penalties = Penalties {
        last_n: 4,
        presence: 1000.0,
        ..Penalties::default()
    };
    let mut sampler = Sampler::builder()
        .penalties(penalties)
        .greedy()
        .build(&model)
        .unwrap();
    assert_eq!(sampler.choose(&logits).unwrap(), best);
    sampler.accept(best).unwrap();
    assert_ne!(sampler.choose(&logits).unwrap(), best);
    for token in some_tokens(4, 3) {
        sampler.accept(token).unwrap();
    }
    assert_eq!(
        sampler.choose(&logits).unwrap(),
        best,
        "only the last four count"
    );
    sampler.accept(best).unwrap();
    sampler.reset().unwrap();
    assert_eq!(sampler.choose(&logits).unwrap(), best, "reset forgets");
}

#[test]
fn a_bias_forbids_and_forces() {
    let model = tiny::model(&backend());
    let context = ready(&model);
    let logits = context.last_logits().unwrap();
    let best = logits.best();
    let choose = |bias: &[(Token, f32)]| {
        Sampler::builder()
            .bias(bias)
            .greedy()
            .build(&model)
            .unwrap()
            .choose(&logits)
    };
    assert_ne!(choose(&[(best, f32::NEG_INFINITY)]).unwrap(), best);
    assert_eq!(choose(&[(Token(9), 1e6)]).unwrap(), Token(9));
    let all: Vec<_> = (0..model.vocab().len() as i32)
        .map(|token| (Token(token), f32::NEG_INFINITY))
        .collect();
    assert!(matches!(choose(&all), Err(SamplerError::NoCandidate)));
    let random = Sampler::builder()
        .bias(&all)
        .top_p(0.5)
        .random(1)
        .build(&model)
        .unwrap()
        .choose(&logits);
    assert!(
        matches!(random, Err(SamplerError::NoCandidate)),
        "{random:?}"
    );
}

#[test]
fn tokens_out_of_range_are_not_accepted() {
    let model = tiny::model(&backend());
    let mut sampler = Sampler::builder().greedy().build(&model).unwrap();
    for bad in [-1, tiny::n_vocab() as i32, i32::MAX] {
        assert!(matches!(
            sampler.accept(Token(bad)),
            Err(SamplerError::TokenOutOfRange { .. })
        ));
    }
}

#[test]
fn logits_of_another_vocabulary_are_refused() {
    let model = tiny::model(&backend());
    let other = tiny::finish(
        tiny::describe_byte_pairs(&Shape::default(), "default"),
        &backend(),
        1,
    );
    let mut sampler = Sampler::builder().greedy().build(&other).unwrap();
    let error = sampler
        .sample(&ready(&model).last_logits().unwrap())
        .unwrap_err();
    assert!(
        matches!(error, SamplerError::OtherVocabulary { expected: 257, .. }),
        "{error}"
    );
}

#[test]
fn logits_that_are_not_numbers_are_refused() {
    let model = tiny::describe(&Shape::default())
        .build(
            &backend(),
            &rolling_kv::ModelParams::default(),
            |slot, values| {
                tiny::weights(&slot.name, 1, values);
                if slot.name == "output.weight" {
                    values[64 * 5..64 * 6].fill(f32::NAN);
                }
            },
        )
        .unwrap();
    let context = ready(&model);
    let logits = context.last_logits().unwrap();
    assert!(logits[5].is_nan());
    let mut sampler = Sampler::builder()
        .top_p(0.9)
        .random(1)
        .build(&model)
        .unwrap();
    assert!(matches!(
        sampler.sample(&logits),
        Err(SamplerError::NotANumber { token: 5 })
    ));
}

#[test]
fn a_copy_of_a_sampler_goes_its_own_way_from_the_same_place() {
    let model = tiny::model(&backend());
    let context = ready(&model);
    let logits = context.last_logits().unwrap();
    let penalties = Penalties {
        presence: 1000.0,
        ..Penalties::default()
    };
    let mut first = Sampler::builder()
        .penalties(penalties)
        .random(4)
        .build(&model)
        .unwrap();
    first.sample(&logits).unwrap();
    let mut second = first.try_clone().unwrap();
    assert_eq!(
        first.sample(&logits).unwrap(),
        second.sample(&logits).unwrap()
    );
    let mut grammar = Sampler::builder()
        .grammar("root ::= \"yes\"", "root")
        .greedy()
        .build(&model)
        .unwrap();
    grammar.accept(byte(b'y')).unwrap();
    let mut copy = grammar.try_clone().unwrap();
    drop(grammar);
    copy.accept(byte(b'e')).unwrap();
    assert!(copy.accept(byte(b'e')).is_err());
}

pub fn byte(byte: u8) -> Token {
    Token(tiny::FIRST_BYTE + i32::from(byte))
}
