//! How to make a context.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::ffi;
use crate::rolling::RollingKv;

/// How a row of K or V is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KvType {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point.
    #[default]
    F16,
    /// 16-bit floating point with the exponent of a 32-bit one.
    Bf16,
    /// 8.5 bits per value.
    Q8_0,
    /// 5.5 bits per value.
    Q5_0,
    /// 6 bits per value.
    Q5_1,
    /// 4.5 bits per value.
    Q4_0,
    /// 5 bits per value.
    Q4_1,
    /// 4.5 bits per value, from a table that is not linear.
    #[serde(rename = "iq4_nl")]
    Iq4Nl,
}

impl KvType {
    /// Every type, widest first.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_1,
        Self::Q4_0,
        Self::Iq4Nl,
    ];

    /// Whether values are stored in blocks with a common scale.
    #[must_use]
    pub fn is_quantised(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Bits of a value, with its share of the block's scale.
    #[must_use]
    pub fn bits(self) -> f64 {
        match self {
            Self::F32 => 32.0,
            Self::F16 | Self::Bf16 => 16.0,
            Self::Q8_0 => 8.5,
            Self::Q5_1 => 6.0,
            Self::Q5_0 => 5.5,
            Self::Q4_1 => 5.0,
            Self::Q4_0 | Self::Iq4Nl => 4.5,
        }
    }

    /// Bytes of so many values, a whole number of blocks.
    pub(crate) fn bytes_of(self, values: u64) -> u64 {
        let values = i64::try_from(values).unwrap_or(i64::MAX);
        // SAFETY: only looks up a table that has an entry for every type.
        unsafe { ffi::ggml_row_size(self.to_ffi(), values) as u64 }
    }

    pub(crate) fn to_ffi(self) -> ffi::ggml_type {
        match self {
            Self::F32 => ffi::GGML_TYPE_F32,
            Self::F16 => ffi::GGML_TYPE_F16,
            Self::Bf16 => ffi::GGML_TYPE_BF16,
            Self::Q8_0 => ffi::GGML_TYPE_Q8_0,
            Self::Q5_0 => ffi::GGML_TYPE_Q5_0,
            Self::Q5_1 => ffi::GGML_TYPE_Q5_1,
            Self::Q4_0 => ffi::GGML_TYPE_Q4_0,
            Self::Q4_1 => ffi::GGML_TYPE_Q4_1,
            Self::Iq4Nl => ffi::GGML_TYPE_IQ4_NL,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Iq4Nl => "iq4_nl",
        })
    }
}

/// Whether attention is computed in one fused step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FlashAttention {
    /// Where every device of the model can.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. V is then stored transposed, and cannot be quantised.
    Off,
}

/// How the embeddings of a sequence become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// Not at all: one embedding per token.
    None,
    /// Their mean.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
    /// A score from the model's classification head.
    Rank,
}

/// Which tokens a token can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attention {
    /// Those before it.
    Causal,
    /// All of its sequence.
    NonCausal,
}

/// How positions are stretched beyond the trained length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies alike.
    Linear,
    /// Each frequency as YaRN has it.
    Yarn,
}

/// Parameters of [`Model::context`](crate::Model::context).
///
/// ```
/// use rolling_kv::{ContextParams, KvType};
/// let params = ContextParams::new(131_072).cache_types(KvType::Q8_0, KvType::Q8_0).threads(8);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ContextParams {
    pub(crate) n_ctx: u32,
    pub(crate) n_batch: u32,
    pub(crate) n_ubatch: u32,
    pub(crate) n_seq_max: u32,
    pub(crate) kv_unified: bool,
    pub(crate) n_threads: Option<u32>,
    pub(crate) n_threads_batch: Option<u32>,
    pub(crate) type_k: KvType,
    pub(crate) type_v: KvType,
    pub(crate) flash_attention: FlashAttention,
    pub(crate) embeddings: bool,
    pub(crate) pooling: Option<Pooling>,
    pub(crate) attention: Option<Attention>,
    pub(crate) rope_scaling: Option<RopeScaling>,
    pub(crate) rope_freq_base: f32,
    pub(crate) rope_freq_scale: f32,
    pub(crate) yarn_original_ctx: u32,
    pub(crate) swa_full: bool,
    pub(crate) kv_on_host: bool,
    pub(crate) ops_on_host: bool,
    pub(crate) rolling_kv: Option<RollingKv>,
}

impl Default for ContextParams {
    /// The length that the model was trained with, one sequence.
    fn default() -> Self {
        Self::new(0)
    }
}

impl ContextParams {
    /// A context of `n_ctx` tokens over all sequences; 0 means the length that the model was trained with. llama.cpp
    /// rounds it up to a multiple of 256, per sequence unless the cache is unified.
    pub fn new(n_ctx: u32) -> Self {
        Self {
            n_ctx,
            n_batch: 2048,
            n_ubatch: 512,
            n_seq_max: 1,
            kv_unified: false,
            n_threads: None,
            n_threads_batch: None,
            type_k: KvType::F16,
            type_v: KvType::F16,
            flash_attention: FlashAttention::Auto,
            embeddings: false,
            pooling: None,
            attention: None,
            rope_scaling: None,
            rope_freq_base: 0.0,
            rope_freq_scale: 0.0,
            yarn_original_ctx: 0,
            swa_full: false,
            kv_on_host: false,
            ops_on_host: false,
            rolling_kv: None,
        }
    }

    /// Tokens that one [`Batch`](crate::Batch) may hold. 2048 unless set; never more than the context.
    pub fn n_batch(mut self, tokens: u32) -> Self {
        self.n_batch = tokens;
        self
    }

    /// Tokens that are computed at once. 512 unless set; never more than `n_batch`.
    pub fn n_ubatch(mut self, tokens: u32) -> Self {
        self.n_ubatch = tokens;
        self
    }

    /// Number of sequences, from 0 up. 1 unless set, at most 256.
    pub fn n_seq_max(mut self, sequences: u32) -> Self {
        self.n_seq_max = sequences;
        self
    }

    /// Keep all sequences in one buffer of cells, so that they can share tokens and use the context unevenly.
    pub fn kv_unified(mut self) -> Self {
        self.kv_unified = true;
        self
    }

    /// CPU threads for a single token; also for many, unless [`threads_batch`](Self::threads_batch) says otherwise. As
    /// many as the process may use unless set.
    pub fn threads(mut self, threads: u32) -> Self {
        self.n_threads = Some(threads);
        self
    }

    /// CPU threads for more than one token at once.
    pub fn threads_batch(mut self, threads: u32) -> Self {
        self.n_threads_batch = Some(threads);
        self
    }

    /// How K and V are stored. A quantised V needs flash attention.
    pub fn cache_types(mut self, k: KvType, v: KvType) -> Self {
        (self.type_k, self.type_v) = (k, v);
        self
    }

    /// Whether attention is computed in one fused step.
    pub fn flash_attention(mut self, mode: FlashAttention) -> Self {
        self.flash_attention = mode;
        self
    }

    /// Make embeddings beside logits. Every token of a batch is then an output.
    pub fn embeddings(mut self) -> Self {
        self.embeddings = true;
        self
    }

    /// How the embeddings of a sequence become one. As the model asks for unless set.
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = Some(pooling);
        self
    }

    /// Which tokens a token can see. As the model asks for unless set.
    pub fn attention(mut self, attention: Attention) -> Self {
        self.attention = Some(attention);
        self
    }

    /// How positions are stretched beyond the trained length. As the model asks for unless set.
    pub fn rope_scaling(mut self, scaling: RopeScaling) -> Self {
        self.rope_scaling = Some(scaling);
        self
    }

    /// Base frequency of the rotation; 0 means the model's.
    pub fn rope_freq_base(mut self, base: f32) -> Self {
        self.rope_freq_base = base;
        self
    }

    /// Factor on the frequencies of the rotation, 0.5 for twice the length; 0 means the model's.
    pub fn rope_freq_scale(mut self, scale: f32) -> Self {
        self.rope_freq_scale = scale;
        self
    }

    /// Length that YaRN stretches from; 0 means the model's.
    pub fn yarn_original_ctx(mut self, tokens: u32) -> Self {
        self.yarn_original_ctx = tokens;
        self
    }

    /// Keep the whole context for sliding-window layers too, which costs memory and lets a sequence be cut anywhere.
    pub fn swa_full(mut self) -> Self {
        self.swa_full = true;
        self
    }

    /// Keep the cache in the host's memory even if the layers are on a device.
    pub fn kv_on_host(mut self) -> Self {
        self.kv_on_host = true;
        self
    }

    /// Compute on the CPU what lies in the host's memory, instead of sending it to a device for large batches.
    pub fn ops_on_host(mut self) -> Self {
        self.ops_on_host = true;
        self
    }

    /// Keep only a window of the cache in device memory; the rest lies in host memory, and attention stays exact.
    pub fn rolling_kv(mut self, spill: RollingKv) -> Self {
        self.rolling_kv = Some(spill);
        self
    }

    /// The C struct. Sizes are already checked; `n_ctx` is already rounded.
    pub(crate) fn to_ffi(&self, n_ctx: u32) -> ffi::llama_context_params {
        // SAFETY: takes nothing and answers a struct by value.
        let mut raw = unsafe { ffi::llama_context_default_params() };
        raw.n_ctx = n_ctx;
        raw.n_batch = self.n_batch.min(i32::MAX as u32);
        raw.n_ubatch = self.n_ubatch.min(raw.n_batch);
        raw.n_seq_max = self.n_seq_max;
        raw.kv_unified = self.kv_unified;
        raw.n_threads = self.threads_for_token() as i32;
        raw.n_threads_batch = self.threads_for_batch() as i32;
        raw.type_k = self.type_k.to_ffi();
        raw.type_v = self.type_v.to_ffi();
        raw.flash_attn_type = match self.flash_attention {
            FlashAttention::Auto => ffi::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => ffi::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            FlashAttention::Off => ffi::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        raw.embeddings = self.embeddings;
        raw.pooling_type = self
            .pooling
            .map_or(ffi::LLAMA_POOLING_TYPE_UNSPECIFIED, Pooling::to_ffi);
        raw.attention_type = match self.attention {
            None => ffi::LLAMA_ATTENTION_TYPE_UNSPECIFIED,
            Some(Attention::Causal) => ffi::LLAMA_ATTENTION_TYPE_CAUSAL,
            Some(Attention::NonCausal) => ffi::LLAMA_ATTENTION_TYPE_NON_CAUSAL,
        };
        raw.rope_scaling_type = match self.rope_scaling {
            None => ffi::LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
            Some(RopeScaling::None) => ffi::LLAMA_ROPE_SCALING_TYPE_NONE,
            Some(RopeScaling::Linear) => ffi::LLAMA_ROPE_SCALING_TYPE_LINEAR,
            Some(RopeScaling::Yarn) => ffi::LLAMA_ROPE_SCALING_TYPE_YARN,
        };
        raw.rope_freq_base = self.rope_freq_base;
        raw.rope_freq_scale = self.rope_freq_scale;
        raw.yarn_orig_ctx = self.yarn_original_ctx;
        raw.swa_full = self.swa_full;
        raw.offload_kqv = !self.kv_on_host;
        raw.op_offload = !self.ops_on_host;
        raw.no_perf = false;
        raw
    }

    pub(crate) fn threads_for_token(&self) -> u32 {
        self.n_threads.unwrap_or_else(default_threads)
    }

    pub(crate) fn threads_for_batch(&self) -> u32 {
        self.n_threads_batch
            .unwrap_or_else(|| self.threads_for_token())
    }
}

impl Pooling {
    pub(crate) fn to_ffi(self) -> ffi::llama_pooling_type {
        match self {
            Self::None => ffi::LLAMA_POOLING_TYPE_NONE,
            Self::Mean => ffi::LLAMA_POOLING_TYPE_MEAN,
            Self::Cls => ffi::LLAMA_POOLING_TYPE_CLS,
            Self::Last => ffi::LLAMA_POOLING_TYPE_LAST,
            Self::Rank => ffi::LLAMA_POOLING_TYPE_RANK,
        }
    }

    pub(crate) fn from_ffi(raw: ffi::llama_pooling_type) -> Self {
        match raw {
            ffi::LLAMA_POOLING_TYPE_MEAN => Self::Mean,
            ffi::LLAMA_POOLING_TYPE_CLS => Self::Cls,
            ffi::LLAMA_POOLING_TYPE_LAST => Self::Last,
            ffi::LLAMA_POOLING_TYPE_RANK => Self::Rank,
            _ => Self::None,
        }
    }
}

/// Threads that this process may run at once.
fn default_threads() -> u32 {
    let threads = std::thread::available_parallelism()
        .ok()
        .and_then(|count| NonZeroU32::try_from(count).ok());
    threads
        .map_or(4, NonZeroU32::get)
        .min(crate::context::MAX_THREADS)
}
