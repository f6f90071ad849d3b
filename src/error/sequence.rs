use super::Failure;

/// Why a sequence was not changed. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// A sequence that the context does not have.
    #[error("there is no sequence {seq}: the context has 0..{n_seq_max}; raise n_seq_max")]
    OutOfRange {
        /// The sequence.
        seq: i32,
        /// Number of sequences.
        n_seq_max: u32,
    },
    /// A range that begins below zero or ends before it begins.
    #[error(
        "{start}..{end} is not a range of positions: positions start at 0 and a range must not end before it begins"
    )]
    BadRange {
        /// First position.
        start: i64,
        /// Position after the last.
        end: i64,
    },
    /// The model keeps nothing between calls.
    #[error("this model keeps nothing between calls, so it has no sequences to edit")]
    NoMemory,
    /// Only a whole sequence can be copied here.
    #[error(
        "only the whole of sequence {src} can be copied to {dst} here, not positions {start}..{end} of it: {reason}"
    )]
    PartialCopy {
        /// Where from.
        src: i32,
        /// Where to.
        dst: i32,
        /// First position.
        start: i32,
        /// Position after the last.
        end: i32,
        /// Why, and what would help.
        reason: &'static str,
    },
    /// This kind of memory cannot forget a part of a sequence.
    #[error(
        "positions {start}..{end} of sequence {seq} cannot be removed alone: remove the whole sequence and decode it again"
    )]
    PartialRemoval {
        /// The sequence.
        seq: i32,
        /// First position.
        start: i32,
        /// Position after the last.
        end: i32,
    },
    /// Positions cannot be moved in this context.
    #[error(
        "positions cannot be moved here ({reason}): remove the sequence and decode it again at the new positions"
    )]
    CannotShift {
        /// Why.
        reason: String,
    },
    /// A position would leave what can be counted.
    #[error(
        "moving sequence {seq} by {delta} would put position {pos} out of 0..2147483647: remove those tokens first"
    )]
    MovedOut {
        /// The sequence.
        seq: i32,
        /// The position that would leave.
        pos: i32,
        /// By how much it was to be moved.
        delta: i32,
    },
    /// Positions cannot be divided by this.
    #[error("positions cannot be divided by {divisor}: use 1 or more")]
    BadDivisor {
        /// What was asked for.
        divisor: i32,
    },
    /// llama.cpp failed.
    #[error("llama.cpp failed while editing sequences: {0}")]
    Failed(#[from] Failure),
    /// An assertion inside llama.cpp failed earlier.
    #[error(
        "this context is in an unknown state after an assertion of llama.cpp failed: drop it and make a new one"
    )]
    Poisoned,
}
