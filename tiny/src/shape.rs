//! How large a model is, and its description.

use rolling_kv::UserModel;

use crate::vocabulary::{with_byte_pairs, with_words};

/// What varies between tiny models.
#[derive(Debug, Clone)]
pub struct Shape {
    /// One of llama.cpp's names.
    pub architecture: &'static str,
    /// Channels of a token.
    pub n_embd: u32,
    /// Query heads of a layer.
    pub n_head: u32,
    /// Key heads of a layer.
    pub n_head_kv: u32,
    /// Layers.
    pub n_layer: u32,
    /// Tokens of the context that the model claims to be trained for.
    pub n_ctx_train: u32,
    /// Seed of the weights.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            architecture: "llama",
            n_embd: 64,
            n_head: 2,
            n_head_kv: 1,
            n_layer: 2,
            n_ctx_train: 512,
            seed: 1,
        }
    }
}

/// The description of a model of this shape, with a vocabulary of bytes and a few words. What else its architecture wants
/// is added to it.
#[must_use]
pub fn describe(shape: &Shape) -> UserModel {
    with_words(describe_without_vocabulary(shape))
}

/// The same with a vocabulary of byte pairs, one token per byte and no merges, whose text is cut by patterns.
#[must_use]
pub fn describe_byte_pairs(shape: &Shape, patterns: &str) -> UserModel {
    with_byte_pairs(describe_without_vocabulary(shape), patterns)
}

/// The same without any vocabulary.
#[must_use]
pub fn describe_without_vocabulary(shape: &Shape) -> UserModel {
    let key = |name: &str| format!("{}.{name}", shape.architecture);
    UserModel::new(shape.architecture)
        .u32(&key("context_length"), shape.n_ctx_train)
        .u32(&key("embedding_length"), shape.n_embd)
        .u32(&key("block_count"), shape.n_layer)
        .u32(&key("feed_forward_length"), shape.n_embd + 32)
        .u32(&key("attention.head_count"), shape.n_head)
        .u32(&key("attention.head_count_kv"), shape.n_head_kv)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .f32(&key("attention.layer_norm_epsilon"), 1e-5)
}
