use super::{Failure, RollingKvError, human};
use crate::KvType;

/// Why a context could not be made. The model stays usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The model was loaded without its weights.
    #[error(
        "the model was loaded with vocab_only, so it cannot compute: load it without that option"
    )]
    VocabOnly,
    /// A size is zero.
    #[error("{option} is 0: it must be at least 1")]
    Zero {
        /// The parameter.
        option: &'static str,
    },
    /// More sequences than llama.cpp can tell apart.
    #[error("n_seq_max = {asked} is too many: at most {max} sequences are possible")]
    TooManySequences {
        /// What was asked for.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// A batch must have room for one output of every sequence.
    #[error(
        "n_batch = {n_batch} is below n_seq_max = {n_seq_max}: raise n_batch to at least n_seq_max"
    )]
    BatchBelowSequences {
        /// What was asked for.
        n_batch: u32,
        /// What was asked for.
        n_seq_max: u32,
    },
    /// Positions are 32-bit signed numbers.
    #[error(
        "n_ctx = {n_ctx} is more than the {max} positions that llama.cpp can count; its cache would take {} ({cache_bytes} bytes)",
        human(*cache_bytes)
    )]
    TooLong {
        /// What was asked for.
        n_ctx: u32,
        /// The limit.
        max: u32,
        /// What the cache would take, in bytes.
        cache_bytes: u64,
    },
    /// The context does not fit into the host's memory.
    #[error(
        "a context of {n_ctx} tokens needs at least {} of host memory ({cache_bytes} bytes of cache, {cells_bytes} of bookkeeping, \
         {compute_bytes} for computing) and {} are free ({available_bytes} bytes): lower n_ctx, n_seq_max or n_ubatch, or use a smaller cache type",
        human(cache_bytes.saturating_add(*cells_bytes).saturating_add(*compute_bytes)), human(*available_bytes)
    )]
    NotEnoughMemory {
        /// Tokens of context, as padded by llama.cpp.
        n_ctx: u32,
        /// K and V rows and recurrent states, in bytes.
        cache_bytes: u64,
        /// Bookkeeping of the cells, in bytes.
        cells_bytes: u64,
        /// Working memory of one ubatch, in bytes; a lower bound.
        compute_bytes: u64,
        /// Free host memory, in bytes.
        available_bytes: u64,
    },
    /// Too many threads.
    #[error("{option} = {asked} is too many: at most {max} threads are possible")]
    TooManyThreads {
        /// The parameter.
        option: &'static str,
        /// What was asked for.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// A number that must be an ordinary one is NaN or infinite, or out of range.
    #[error("{option} = {value}: {expected}")]
    BadNumber {
        /// The parameter.
        option: &'static str,
        /// What was asked for.
        value: f32,
        /// What would be right.
        expected: &'static str,
    },
    /// A quantised V needs flash attention.
    #[error(
        "type_v = {type_v} needs flash attention, and flash_attention is off: use FlashAttention::Auto or On, or type_v = f16"
    )]
    QuantisedVWithoutFlashAttention {
        /// What was asked for.
        type_v: KvType,
    },
    /// A head cannot be cut into whole blocks of the type.
    #[error(
        "{option} = {kv_type} stores blocks of {block_size} values, and a head of layer {layer} has {head_dim}: use f16, bf16 or f32"
    )]
    HeadNotDivisible {
        /// `type_k` or `type_v`.
        option: &'static str,
        /// What was asked for.
        kv_type: KvType,
        /// Values in one block.
        block_size: u32,
        /// Values in one head.
        head_dim: u32,
        /// The first layer where it fails.
        layer: u32,
    },
    /// K and V are the same row in this model.
    #[error(
        "this model keeps K and V in one row, so type_k = {type_k} and type_v = {type_v} must be equal"
    )]
    TypesMustBeEqual {
        /// What was asked for.
        type_k: KvType,
        /// What was asked for.
        type_v: KvType,
    },
    /// Rank pooling needs a classification head.
    #[error(
        "pooling = rank needs a model with a classification head, and this one has none: use another pooling"
    )]
    NoClassifier,
    /// Encoder-decoder models work on one buffer of cells only.
    #[error(
        "this model's encoder cannot serve {n_seq_max} separate sequences: use n_seq_max = 1 or kv_unified"
    )]
    EncoderNeedsUnified {
        /// What was asked for.
        n_seq_max: u32,
    },
    /// The window that was asked for is not possible.
    #[error("rolling_kv: {0}")]
    RollingKv(#[from] RollingKvError),
    /// llama.cpp refused.
    #[error("llama.cpp could not make the context: {0}")]
    Failed(#[from] Failure),
}
