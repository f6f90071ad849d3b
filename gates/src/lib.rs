//! The gates of rolling-kv: each compares what a spilled KV cache computes with what a resident one does, judges the
//! numbers, and can be made to fail on purpose.

mod budget;
mod budget_plot;
mod budget_report;
mod cliff;
mod cliff_plot;
mod cliff_report;
mod decode_time;
mod digest;
mod error;
mod html;
mod logit_equiv;
mod logit_equiv_plot;
mod logit_equiv_report;
mod metrics;
mod niah;
mod niah_reader;
mod niah_report;
mod noise_text;
mod picture;
mod plan;
mod plan_page;
mod plan_plot;
mod plan_report;
mod profile;
mod profile_plot;
mod raw_file;
pub mod ruler;
mod settings;
mod shift;
mod shift_plot;
mod shift_report;
mod shift_series;
mod spec;
mod spec_error;
mod store;
mod stored_keys;
mod subject;
mod threshold;
mod turned_keys;
mod verdict;

pub use budget::{
    Budget, ExactLever, ExactReport, LayerReach, LocalLever, LocalReport, LocalTrial, Split,
    SplitResult,
};
pub use budget_report::{BudgetReport, BudgetThresholds};
pub use cliff::Cliff;
pub use cliff_report::{CliffPoint, CliffReport, CliffThresholds};
pub use digest::of_text as digest_of_text;
pub use error::GateError;
pub use logit_equiv::{Inject, LogitEquiv};
pub use logit_equiv_report::{LogitEquivReport, LogitEquivThresholds, OfF16, SpilledRun};
pub use metrics::Comparison;
pub use niah::{Asked, Niah, Said, Spot};
pub use niah_report::{NiahReport, NiahThresholds, TaskScore};
pub use noise_text::noise_text;
pub use plan::PlanCheck;
pub use plan_plot::{PlanCurve, plan_svg};
pub use plan_report::{PlanPoint, PlanReport, PlanThresholds, PlannedWindow};
pub use profile::{HeadProfile, Profile, ProfileReport};
pub use settings::Settings;
pub use shift::Shift;
pub use shift_report::{ShiftErrors, ShiftReport, ShiftThresholds};
pub use shift_series::{ShiftPoint, ShiftSeries};
pub use spec::{GATES, Spec, SpecOption, Thresholds};
pub use spec_error::SpecError;
pub use store::Store;
pub use threshold::{Check, Judged, Threshold};
pub use verdict::Verdict;
