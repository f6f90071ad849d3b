//! Models for tests: tiny ones with random weights, made in memory or as a file, and the small real one.

#![allow(dead_code)]

pub mod gguf_file;
pub mod real;
pub mod sim;
pub mod tiny;

use rolling_kv::{Backend, Context, Token};

pub use rolling_kv_tiny::Random;

pub fn backend() -> Backend {
    Backend::init().expect("the backends of this build load")
}

/// Tokens that mean nothing, the same for the same seed.
pub fn some_tokens(count: usize, seed: u64) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| Token(3 + random.below(250) as i32))
        .collect()
}

/// Logits after appending `tokens` to an empty sequence of `context`.
pub fn logits_after(context: &mut Context<'_>, seq: i32, tokens: &[Token]) -> Vec<f32> {
    context.append(seq, tokens).expect("the tokens fit");
    context
        .last_logits()
        .expect("the last token is an output")
        .to_vec()
}

/// Mean squared difference over mean square: 0 for equal, 1 for unrelated.
pub fn nmse(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len());
    let square = |value: f32| f64::from(value) * f64::from(value);
    let difference: f64 = left
        .iter()
        .zip(right)
        .map(|(left, right)| square(left - right))
        .sum();
    let scale: f64 = left.iter().map(|value| square(*value)).sum();
    difference / scale.max(f64::MIN_POSITIVE)
}

/// On a machine that is some fifty times slower, such as the one that valgrind makes, repetitions are cut.
pub fn fewer_if_slow(count: usize) -> usize {
    if std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some() {
        count.div_ceil(50)
    } else {
        count
    }
}
