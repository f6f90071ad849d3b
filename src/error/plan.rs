//! What keeps a plan from being made.

use crate::context_params::KvType;

/// Why a plan cannot be made. A model that does not fit is no error but an answer: [`PlanFit`](crate::PlanFit).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A rate is no number that one can reckon with.
    #[error(
        "the rate {name} is {found}\n  next: give a number above 0, or measure it with `rolling-kv calibrate`"
    )]
    Rate {
        /// Its name.
        name: &'static str,
        /// What it is.
        found: f64,
    },
    /// Nothing is known of a device.
    #[error(
        "the rates are of a host without a device, and a plan is about what a device holds\n  next: calibrate with --device, or name a machine of `rolling-kv plan --list-machines`"
    )]
    NoDevice,
    /// The shape of the model is none.
    #[error("the model's shape has {what}\n  next: {advice}")]
    Shape {
        /// What is wrong with it.
        what: String,
        /// What to do.
        advice: String,
    },
    /// A context without tokens, or one that cannot be counted.
    #[error("a context of {n_ctx} tokens cannot be planned\n  next: give 1 to {max}")]
    Context {
        /// What was asked for.
        n_ctx: u32,
        /// The longest.
        max: u32,
    },
    /// More tokens in the cache than it has cells.
    #[error(
        "a depth of {depth} tokens is more than the context of {n_ctx}\n  next: give a smaller --depth, or a larger --ctx"
    )]
    Depth {
        /// Tokens in the cache.
        depth: u32,
        /// Tokens of context.
        n_ctx: u32,
    },
    /// A row of K or V is not whole blocks of its type.
    #[error(
        "a row of {values} values cannot be stored as {kv_type}\n  next: use f16, bf16, or another type"
    )]
    CacheType {
        /// Values of a row.
        values: u32,
        /// The type.
        kv_type: KvType,
    },
    /// A tile size that is not possible.
    #[error("a tile is {asked} cells\n  next: give a multiple of {step} up to {max}")]
    Tile {
        /// What was asked for.
        asked: u32,
        /// It must be a multiple of this.
        step: u32,
        /// The largest.
        max: u32,
    },
}
