//! Tiny models with random weights, made in memory in milliseconds: one for each way to keep what was read. A random
//! model is as good as a trained one for everything but the sense of its text.
//!
//! The same name gives the same metadata and the same weights everywhere, bit by bit.

mod models;
mod random;
mod shape;
mod vocabulary;
mod weights;

pub use models::{
    BERT, BYTE_PAIRS, DEEPSEEK2, GEMMA2, GEMMA4, JAMBA, LLAMA, MAMBA, QWEN2VL, T5, Tiny,
};
pub use random::Random;
pub use shape::{Shape, describe, describe_byte_pairs, describe_without_vocabulary};
pub use vocabulary::{BOS, EOS, FIRST_BYTE, UNKNOWN, WORDS, n_vocab, vocabulary};
pub use weights::{fill, weights};
