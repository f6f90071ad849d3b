use std::path::PathBuf;

use super::{Failure, SequenceError};

/// Why a state was not saved or restored. When restoring fails, the context holds what it held before, unless the
/// variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No such sequence, or a model without memory.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The file cannot be read or written.
    #[error("the state file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// These bytes are something else.
    #[error("this is not a state of rolling-kv: it does not begin with its mark")]
    NotAState,
    /// Written by a version of this crate with another format.
    #[error("the state has format {found}, this version reads {expected}: make it again")]
    OtherFormat {
        /// The format that this version reads.
        expected: u32,
        /// The format that was found.
        found: u32,
    },
    /// There are fewer bytes than the header promises.
    #[error("the state is cut short: it needs {needs} bytes and has {has}")]
    Truncated {
        /// Bytes that the header promises.
        needs: u64,
        /// Bytes that are there.
        has: u64,
    },
    /// There are more bytes than the header promises.
    #[error("the state is followed by {extra} bytes that do not belong to it")]
    TrailingBytes {
        /// How many.
        extra: u64,
    },
    /// The checksum does not fit.
    #[error("the state is damaged: its checksum does not fit; make it again")]
    Corrupt,
    /// A whole-context state where one of a sequence is needed, or the other way round.
    #[error(
        "this is the state of {found}, and one of {expected} is needed: use the other restore function"
    )]
    OtherKind {
        /// What is needed.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// Saved with other weights.
    #[error("the state was saved with another model: load that model, or decode the prompt again")]
    OtherModel,
    /// Saved by another llama.cpp.
    #[error("the state was saved by {found}, and this is {expected}: decode the prompt again")]
    OtherUpstream {
        /// This library.
        expected: String,
        /// The library that saved it.
        found: String,
    },
    /// Saved from a context whose cache is laid out differently.
    #[error(
        "the state was saved with {option} = {saved} and this context has {here}: make a context with the same, or decode again"
    )]
    OtherLayout {
        /// The parameter that differs.
        option: &'static str,
        /// Its value when the state was saved.
        saved: String,
        /// Its value here.
        here: String,
    },
    /// The cache has no room for it, or its contents do not suit this context.
    #[error(
        "the state does not fit into this context: {0}; make one with a larger n_ctx or n_seq_max, or remove other sequences"
    )]
    DoesNotFit(Failure),
    /// Restoring failed and so did putting back what was there. Everything that was restored or replaced is gone.
    #[error(
        "{cause}; what the context held before could not be put back either: clear it before using it again"
    )]
    Lost {
        /// Why restoring failed.
        cause: Box<StateError>,
    },
    /// llama.cpp failed.
    #[error("llama.cpp failed: {0}")]
    Failed(#[from] Failure),
    /// An assertion inside llama.cpp failed earlier.
    #[error(
        "this context is in an unknown state after an assertion of llama.cpp failed: drop it and make a new one"
    )]
    Poisoned,
}
