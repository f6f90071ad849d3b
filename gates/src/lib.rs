//! The gates of rolling-kv: each compares what a spilled KV cache computes with what a resident one does, judges the
//! numbers, and can be made to fail on purpose.

mod budget;
mod budget_plot;
mod cliff;
mod cliff_plot;
mod decode_time;
mod error;
mod html;
mod logit_equiv;
mod metrics;
mod niah;
mod niah_report;
mod noise_text;
mod profile;
mod profile_plot;
pub mod ruler;
mod shift;
mod shift_plot;
mod shift_series;
mod store;
mod stored_keys;
mod subject;
mod turned_keys;
mod verdict;

pub use budget::{
    Budget, BudgetReport, ExactLever, ExactReport, LayerReach, LocalLever, LocalLimits,
    LocalReport, LocalTrial, Split, SplitResult,
};
pub use cliff::{Cliff, CliffPoint, CliffReport};
pub use error::GateError;
pub use logit_equiv::{Inject, LogitEquiv, LogitEquivReport, SpilledRun};
pub use metrics::Comparison;
pub use niah::{Asked, Niah, Said, Spot};
pub use niah_report::{NiahReport, TaskScore};
pub use noise_text::noise_text;
pub use profile::{HeadProfile, Profile, ProfileReport};
pub use shift::{Shift, ShiftErrors, ShiftReport};
pub use shift_series::{ShiftPoint, ShiftSeries};
pub use store::Store;
pub use verdict::Verdict;
