//! The models that have a name.

use rolling_kv::{Backend, LoadError, Model, ModelParams, UserModel};

use crate::shape::{Shape, describe, describe_byte_pairs};
use crate::vocabulary::BOS;
use crate::weights::fill;

/// A tiny model that has a name.
#[derive(Debug, Clone, Copy)]
pub struct Tiny {
    /// Its architecture, or what else tells it from the others.
    pub name: &'static str,
    description: fn() -> UserModel,
    seed: u64,
}

impl Tiny {
    /// Every model, by what it keeps of the tokens that it read: first those with K and V in cells.
    pub const ALL: [Self; 10] = [
        LLAMA, GEMMA2, GEMMA4, QWEN2VL, DEEPSEEK2, JAMBA, BYTE_PAIRS, T5, MAMBA, BERT,
    ];

    /// The model of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tiny| tiny.name == name)
    }

    /// Makes the model.
    ///
    /// # Errors
    /// When it does not fit where the parameters say.
    pub fn load(&self, backend: &Backend, params: &ModelParams) -> Result<Model, LoadError> {
        fill((self.description)(), backend, params, self.seed)
    }
}

/// A tiny llama.
pub const LLAMA: Tiny = Tiny {
    name: "llama",
    description: || describe(&Shape::default()),
    seed: 1,
};

/// The same with a vocabulary of byte pairs.
pub const BYTE_PAIRS: Tiny = Tiny {
    name: "byte-pairs",
    description: || describe_byte_pairs(&Shape::default(), "llama-bpe"),
    seed: 1,
};

/// A model every other layer of which looks back 32 tokens only.
pub const GEMMA2: Tiny = Tiny {
    name: "gemma2",
    description: gemma2,
    seed: 2,
};

/// A model that keeps a state per sequence.
pub const MAMBA: Tiny = Tiny {
    name: "mamba",
    description: mamba,
    seed: 3,
};

/// A model that keeps both a state per sequence and a cache of tokens.
pub const JAMBA: Tiny = Tiny {
    name: "jamba",
    description: jamba,
    seed: 4,
};

/// A model whose tokens have several positions.
pub const QWEN2VL: Tiny = Tiny {
    name: "qwen2vl",
    description: || {
        describe(&shape("qwen2vl")).i32s("qwen2vl.rope.dimension_sections", &[4, 6, 6, 0])
    },
    seed: 5,
};

/// A model that keeps K and V in one latent row.
pub const DEEPSEEK2: Tiny = Tiny {
    name: "deepseek2",
    description: deepseek2,
    seed: 6,
};

/// A model that turns a text into embeddings and keeps nothing.
pub const BERT: Tiny = Tiny {
    name: "bert",
    description: bert,
    seed: 7,
};

/// A model with an encoder and a decoder.
pub const T5: Tiny = Tiny {
    name: "t5",
    description: t5,
    seed: 8,
};

/// A model whose last two layers have no cache of their own: layer 4 reads that of layer 2, which slides, and layer 5 that
/// of layer 3.
pub const GEMMA4: Tiny = Tiny {
    name: "gemma4",
    description: gemma4,
    seed: 9,
};

fn shape(architecture: &'static str) -> Shape {
    Shape {
        architecture,
        ..Shape::default()
    }
}

fn gemma2() -> UserModel {
    let shape = Shape {
        n_layer: 4,
        ..shape("gemma2")
    };
    describe(&shape)
        .u32("gemma2.attention.sliding_window", 32)
        .u32("gemma2.attention.key_length", 32)
        .u32("gemma2.attention.value_length", 32)
}

fn mamba() -> UserModel {
    describe(&shape("mamba"))
        .u32("mamba.ssm.conv_kernel", 4)
        .u32("mamba.ssm.inner_size", 128)
        .u32("mamba.ssm.state_size", 16)
        .u32("mamba.ssm.time_step_rank", 4)
}

fn jamba() -> UserModel {
    describe(&shape("jamba"))
        .u32s("jamba.attention.head_count_kv", &[0, 1])
        .u32("jamba.ssm.conv_kernel", 4)
        .u32("jamba.ssm.inner_size", 128)
        .u32("jamba.ssm.state_size", 16)
        .u32("jamba.ssm.time_step_rank", 4)
}

fn deepseek2() -> UserModel {
    let shape = Shape {
        n_head: 1,
        n_head_kv: 1,
        ..shape("deepseek2")
    };
    describe(&shape)
        .u32("deepseek2.leading_dense_block_count", 2)
        .u32("deepseek2.attention.q_lora_rank", 32)
        .u32("deepseek2.attention.kv_lora_rank", 64)
        .u32("deepseek2.attention.key_length", 96)
        .u32("deepseek2.attention.value_length", 64)
        .u32("deepseek2.attention.key_length_mla", 64)
        .u32("deepseek2.attention.value_length_mla", 32)
        .u32("deepseek2.rope.dimension_count", 32)
        .u32("deepseek2.expert_feed_forward_length", 32)
        .u32("deepseek2.expert_shared_count", 1)
        .f32("deepseek2.expert_weights_scale", 1.0)
}

fn gemma4() -> UserModel {
    let shape = Shape {
        n_layer: 6,
        ..shape("gemma4")
    };
    describe(&shape)
        .u32("gemma4.attention.sliding_window", 32)
        .u32s(
            "gemma4.attention.sliding_window_pattern",
            &[1, 0, 1, 0, 1, 0],
        )
        .u32("gemma4.attention.shared_kv_layers", 2)
        .u32("gemma4.attention.key_length", 32)
        .u32("gemma4.attention.value_length", 32)
        .u32("gemma4.attention.key_length_swa", 32)
        .u32("gemma4.attention.value_length_swa", 32)
        .u32("gemma4.embedding_length_per_layer_input", 32)
        .f32("gemma4.rope.freq_base_swa", 10000.0)
}

fn bert() -> UserModel {
    let shape = Shape {
        n_head_kv: 2,
        ..shape("bert")
    };
    describe(&shape)
        .flag("bert.attention.causal", false)
        .u32("bert.pooling_type", 1)
        .u32("tokenizer.ggml.token_type_count", 2)
}

fn t5() -> UserModel {
    let shape = Shape {
        n_head_kv: 2,
        ..shape("t5")
    };
    describe(&shape)
        .u32("t5.attention.relative_buckets_count", 8)
        .u32("t5.attention.key_length", 32)
        .u32("t5.attention.value_length", 32)
        .u32("t5.decoder_start_token_id", BOS as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_different() {
        for tiny in Tiny::ALL {
            let found = Tiny::of_name(tiny.name).expect("it is listed");
            assert_eq!(found.seed, tiny.seed, "{}", tiny.name);
        }
        assert!(Tiny::of_name("Llama").is_none() && Tiny::of_name("").is_none());
    }
}
