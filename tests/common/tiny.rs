//! Tiny random models. A random model is as good as a trained one for everything but the sense of its text.

use rolling_kv::{Backend, Model, ModelParams, UserModel};

use super::Random;

pub const UNKNOWN: i32 = 0;
pub const BOS: i32 = 1;
pub const EOS: i32 = 2;
/// Token of byte 0; the other bytes follow.
pub const FIRST_BYTE: i32 = 3;

/// What varies between tiny models.
#[derive(Clone)]
pub struct Shape {
    pub architecture: &'static str,
    pub n_embd: u32,
    pub n_head: u32,
    pub n_head_kv: u32,
    pub n_layer: u32,
    pub n_ctx_train: u32,
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

/// Pieces after the bytes; words that a SentencePiece vocabulary would have.
pub const WORDS: [&str; 12] = [
    "\u{2581}",
    "\u{2581}the",
    "\u{2581}a",
    "he",
    "ll",
    "o",
    "hello",
    "\u{2581}hello",
    "yes",
    "no",
    "12",
    "\u{6b63}",
];

pub fn n_vocab() -> usize {
    3 + 256 + WORDS.len()
}

/// Texts, scores and kinds of the vocabulary.
pub fn vocabulary() -> (Vec<String>, Vec<f32>, Vec<i32>) {
    const KIND_NORMAL: i32 = 1;
    const KIND_UNKNOWN: i32 = 2;
    const KIND_CONTROL: i32 = 3;
    const KIND_BYTE: i32 = 6;
    let mut texts: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    let mut kinds = vec![KIND_UNKNOWN, KIND_CONTROL, KIND_CONTROL];
    texts.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    kinds.resize(texts.len(), KIND_BYTE);
    texts.extend(WORDS.map(String::from));
    kinds.resize(texts.len(), KIND_NORMAL);
    let scores = (0..texts.len()).map(|index| -(index as f32)).collect();
    (texts, scores, kinds)
}

/// The description of a model of this shape, with a vocabulary of bytes and a few words.
pub fn describe(shape: &Shape) -> UserModel {
    let (texts, scores, kinds) = vocabulary();
    describe_without_vocabulary(shape)
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &texts)
        .f32s("tokenizer.ggml.scores", &scores)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .u32("tokenizer.ggml.bos_token_id", BOS as u32)
        .u32("tokenizer.ggml.eos_token_id", EOS as u32)
        .u32("tokenizer.ggml.unknown_token_id", UNKNOWN as u32)
}

/// The same with a vocabulary of byte pairs, one token per byte and no merges, whose text is cut by patterns.
pub fn describe_byte_pairs(shape: &Shape, patterns: &str) -> UserModel {
    // Bytes that are no printable Latin-1 character are spelled by the characters from U+0100 on.
    let printable =
        |byte: u32| (0x21..0x7F).contains(&byte) || (0xA1..0xAD).contains(&byte) || byte >= 0xAE;
    let mut next = 0x100;
    let mut spell = |byte: u32| {
        let code = if printable(byte) {
            byte
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code)
            .expect("below the surrogates")
            .to_string()
    };
    let texts: Vec<String> = (0..256)
        .map(&mut spell)
        .chain([String::from("<end>")])
        .collect();
    let kinds: Vec<i32> = (0..256).map(|_| 1).chain([3]).collect();
    describe_without_vocabulary(shape)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", patterns)
        .texts("tokenizer.ggml.tokens", &texts)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .texts("tokenizer.ggml.merges", &["a b".into()])
        .u32("tokenizer.ggml.bos_token_id", 256)
        .u32("tokenizer.ggml.eos_token_id", 256)
}

/// The same without any vocabulary.
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

/// The weights of one tensor: the same for the same name and seed.
pub fn weights(name: &str, seed: u64, values: &mut [f32]) {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::new(hash ^ seed.wrapping_mul(0x9E37_79B9));
    let norm = name.contains("norm");
    // The decay of a state-space layer must be negative.
    let decay = name.contains("ssm_a");
    for value in values {
        let fraction = random.fraction();
        *value = if norm {
            1.0 + 0.1 * fraction
        } else {
            0.4 * fraction
        };
        if decay {
            *value = -value.abs();
        }
    }
}

/// Finishes a description with random weights.
pub fn finish(description: UserModel, backend: &Backend, seed: u64) -> Model {
    finish_with(description, backend, &ModelParams::default(), seed)
}

/// The same where the parameters say.
pub fn finish_with(
    description: UserModel,
    backend: &Backend,
    params: &ModelParams,
    seed: u64,
) -> Model {
    let made = description.build(backend, params, |slot, values| {
        weights(&slot.name, seed, values)
    });
    made.expect("the description is complete")
}

/// Makes a tiny model.
pub type Maker = fn(&Backend) -> Model;

/// A tiny model for each way to keep what was read.
pub const KINDS: [(&str, Maker); 6] = [
    ("llama", model),
    ("sliding", sliding),
    ("recurrent", recurrent),
    ("hybrid", hybrid),
    ("many_positions", many_positions),
    ("latent", latent),
];

/// A tiny llama.
pub fn model(backend: &Backend) -> Model {
    model_of(backend, &Shape::default())
}

pub fn model_of(backend: &Backend, shape: &Shape) -> Model {
    finish(describe(shape), backend, shape.seed)
}

/// A model with layers that look back 32 tokens only.
pub fn sliding(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "gemma2",
        n_layer: 4,
        ..Shape::default()
    };
    let description = describe(&shape)
        .u32("gemma2.attention.sliding_window", 32)
        .u32("gemma2.attention.key_length", 32)
        .u32("gemma2.attention.value_length", 32);
    finish(description, backend, 2)
}

/// A model whose last two layers have no cache of their own: layer 4 reads that of layer 2, which slides, and layer 5 that
/// of layer 3.
pub fn sharing_layers(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "gemma4",
        n_layer: 6,
        ..Shape::default()
    };
    let description = describe(&shape)
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
        .f32("gemma4.rope.freq_base_swa", 10000.0);
    finish(description, backend, 9)
}

/// A model that keeps a state per sequence.
pub fn recurrent(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "mamba",
        ..Shape::default()
    };
    let description = describe(&shape)
        .u32("mamba.ssm.conv_kernel", 4)
        .u32("mamba.ssm.inner_size", 128)
        .u32("mamba.ssm.state_size", 16)
        .u32("mamba.ssm.time_step_rank", 4);
    finish(description, backend, 3)
}

/// A model that keeps both a state per sequence and a cache of tokens.
pub fn hybrid(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "jamba",
        ..Shape::default()
    };
    let description = describe(&shape)
        .u32s("jamba.attention.head_count_kv", &[0, 1])
        .u32("jamba.ssm.conv_kernel", 4)
        .u32("jamba.ssm.inner_size", 128)
        .u32("jamba.ssm.state_size", 16)
        .u32("jamba.ssm.time_step_rank", 4);
    finish(description, backend, 4)
}

/// A model whose tokens have several positions.
pub fn many_positions(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "qwen2vl",
        ..Shape::default()
    };
    let description = describe(&shape).i32s("qwen2vl.rope.dimension_sections", &[4, 6, 6, 0]);
    finish(description, backend, 5)
}

/// A model that keeps K and V in one latent row.
pub fn latent(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "deepseek2",
        n_embd: 64,
        n_head: 1,
        n_head_kv: 1,
        ..Shape::default()
    };
    let description = describe(&shape)
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
        .f32("deepseek2.expert_weights_scale", 1.0);
    finish(description, backend, 6)
}

/// A model that turns a text into embeddings and keeps nothing.
pub fn encoder(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "bert",
        n_head_kv: 2,
        ..Shape::default()
    };
    let description = describe(&shape)
        .flag("bert.attention.causal", false)
        .u32("bert.pooling_type", 1)
        .u32("tokenizer.ggml.token_type_count", 2);
    finish(description, backend, 7)
}

/// A model with an encoder and a decoder.
pub fn encoder_decoder(backend: &Backend) -> Model {
    let shape = Shape {
        architecture: "t5",
        n_head_kv: 2,
        ..Shape::default()
    };
    let description = describe(&shape)
        .u32("t5.attention.relative_buckets_count", 8)
        .u32("t5.attention.key_length", 32)
        .u32("t5.attention.value_length", 32)
        .u32("t5.decoder_start_token_id", BOS as u32);
    finish(description, backend, 8)
}
