use super::{Failure, human};

/// Why a batch was not run. The context stays usable, and its sequences hold what they held before, unless the variant
/// says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The batch holds no token.
    #[error("the batch is empty: push at least one token")]
    EmptyBatch,
    /// The batch holds more tokens than the context takes at once.
    #[error(
        "the batch holds {tokens} tokens and the context takes n_batch = {n_batch}: split it, or use Context::append, which does"
    )]
    BatchTooLarge {
        /// Tokens in the batch.
        tokens: usize,
        /// The context's limit.
        n_batch: u32,
    },
    /// A token that the vocabulary does not have.
    #[error("token {index} of the batch is {token}, and the vocabulary has 0..{n_vocab}")]
    TokenOutOfRange {
        /// Index in the batch.
        index: usize,
        /// The token.
        token: i32,
        /// Size of the vocabulary.
        n_vocab: u32,
    },
    /// A sequence that the context does not have.
    #[error(
        "token {index} of the batch is in sequence {seq}, and the context has 0..{n_seq_max}: raise n_seq_max"
    )]
    SequenceOutOfRange {
        /// Index in the batch.
        index: usize,
        /// The sequence.
        seq: i32,
        /// Number of sequences.
        n_seq_max: u32,
    },
    /// A token that is in no sequence.
    #[error("token {index} of the batch is in no sequence: name at least one")]
    NoSequence {
        /// Index in the batch.
        index: usize,
    },
    /// A token that names one sequence twice.
    #[error("token {index} of the batch names sequence {seq} twice")]
    SequenceTwice {
        /// Index in the batch.
        index: usize,
        /// The sequence.
        seq: i32,
    },
    /// A token that is in several sequences, in a context that keeps them apart.
    #[error(
        "token {index} of the batch is in {n_seqs} sequences, which needs a context with kv_unified"
    )]
    SharedTokenNeedsUnified {
        /// Index in the batch.
        index: usize,
        /// How many sequences it names.
        n_seqs: usize,
    },
    /// A position below zero, or above what can be counted.
    #[error("token {index} of the batch is at position {pos}, and positions are 0..2147483647")]
    PositionOutOfRange {
        /// Index in the batch.
        index: usize,
        /// The position.
        pos: i32,
    },
    /// The model has learned a vector for each position, and none for this one.
    #[error(
        "token {index} of the batch is at position {pos}, and the model knows positions 0..{n_positions} only: read a shorter text"
    )]
    PositionNotLearned {
        /// Index in the batch.
        index: usize,
        /// The position.
        pos: i32,
        /// Positions that the model knows.
        n_positions: u32,
    },
    /// Positions of a sequence must follow each other.
    #[error(
        "token {index} of the batch is at position {found} of sequence {seq}, which continues at {expected}: positions must follow \
         each other; remove or shift what lies there first"
    )]
    PositionGap {
        /// Index in the batch.
        index: usize,
        /// The sequence.
        seq: i32,
        /// The position that would be right.
        expected: i32,
        /// The position that was given.
        found: i32,
    },
    /// A model that looks at all tokens at once needs them in one ubatch.
    #[error(
        "non-causal attention needs the whole batch in one ubatch: {tokens} tokens, n_ubatch = {n_ubatch}; raise n_ubatch"
    )]
    NonCausalTooLarge {
        /// Tokens in the batch.
        tokens: usize,
        /// The context's limit.
        n_ubatch: u32,
    },
    /// Pooling is done within one ubatch.
    #[error(
        "pooled embeddings need the whole batch in one ubatch: {tokens} tokens, n_ubatch = {n_ubatch}; raise n_ubatch"
    )]
    PooledTooLarge {
        /// Tokens in the batch.
        tokens: usize,
        /// The context's limit.
        n_ubatch: u32,
    },
    /// The decoder of an encoder-decoder model has nothing to attend to.
    #[error("this model has an encoder: call Context::encode with the input first")]
    NotEncoded,
    /// The model has no encoder.
    #[error("this model has no encoder: use Context::decode")]
    NoEncoder,
    /// No room in the cache.
    #[error(
        "the cache has no room for {tokens} more tokens: remove something from a sequence, or make a context with a larger n_ctx"
    )]
    NoSlot {
        /// Tokens in the batch.
        tokens: usize,
    },
    /// The output rows would not fit into memory.
    #[error(
        "{outputs} output rows need {} and {} of host memory are free: ask for fewer outputs",
        human(*needs_bytes), human(*available_bytes)
    )]
    OutputsTooLarge {
        /// Rows that were asked for.
        outputs: usize,
        /// What they need, in bytes.
        needs_bytes: u64,
        /// Free host memory, in bytes.
        available_bytes: u64,
    },
    /// [`AbortHandle::abort`](crate::AbortHandle::abort) was called.
    #[error("the run was aborted through its AbortHandle")]
    Aborted,
    /// llama.cpp found the batch inconsistent.
    #[error("llama.cpp refused the batch: {0}")]
    Refused(Failure),
    /// llama.cpp failed while computing.
    #[error("llama.cpp failed while computing: {0}")]
    Failed(Failure),
    /// The run failed and some of its tokens could not be taken back out of the sequence.
    #[error("{cause}; sequence {seq} could not be rolled back: remove it before using it again")]
    NotRolledBack {
        /// The sequence that still holds some of the batch.
        seq: i32,
        /// Why the run failed.
        cause: Box<DecodeError>,
    },
    /// An assertion inside llama.cpp failed earlier.
    #[error(
        "this context is in an unknown state after an assertion of llama.cpp failed: drop it and make a new one"
    )]
    Poisoned,
}

/// Why there is no such output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// Nothing was decoded, or the last batch failed.
    #[error("there is no output: decode a batch first (the last one failed, or there was none)")]
    NothingDecoded,
    /// The batch had no such token.
    #[error("there is no token {index} in the last batch, which had {len}")]
    OutOfRange {
        /// The index that was asked for.
        index: usize,
        /// Tokens in the last batch.
        len: usize,
    },
    /// The token was not marked as an output.
    #[error(
        "token {index} of the last batch was not marked as an output: push it with Output::Yes"
    )]
    NotAnOutput {
        /// The index that was asked for.
        index: usize,
    },
    /// The model has no output matrix.
    #[error("this model makes embeddings only, no logits: use Context::embeddings")]
    NoLogits,
    /// The context was made without embeddings.
    #[error("this context makes no embeddings: make it with ContextParams::embeddings")]
    EmbeddingsOff,
    /// Embeddings are pooled per sequence.
    #[error("this context pools embeddings per sequence: use Context::sequence_embedding")]
    Pooled,
    /// Embeddings are not pooled.
    #[error("this context does not pool embeddings: use Context::embeddings, or choose a pooling")]
    NotPooled,
    /// The sequence was not in the last batch.
    #[error("sequence {seq} was not in the last batch")]
    NoSuchSequence {
        /// The sequence.
        seq: i32,
    },
}
