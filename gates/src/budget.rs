//! Two levers on the device memory that a KV cache takes, kept apart. The exact one places cells and changes no bit. The lossy one lets
//! layers see the first and the newest tokens only; it is offered with what it loses, and what loses too much is rejected.

mod exact;
mod local;
mod predict;
mod search;
mod split;

use rolling_kv::{ContextParams, Model};
use serde::Serialize;

pub use exact::{ExactLever, ExactReport, SplitResult};
pub use local::{LayerReach, LocalLever, LocalLimits, LocalReport, LocalTrial};
pub use split::Split;

use crate::error::GateError;
use crate::subject;
use crate::verdict::Verdict;

/// Both levers on one model.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Placement.
    pub exact: ExactLever,
    /// Local layers; `None`: they are not tried.
    pub local: Option<LocalLever>,
    /// How far a reckoned time may be from the measured one, as a share of it.
    pub prediction_error: f64,
    /// How much longer than the fastest split the chosen one may take, as a share.
    pub chosen_slower: f64,
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct BudgetReport {
    /// Pass or fail.
    pub verdict: Verdict,
    /// Why, one line a threshold.
    pub reasons: Vec<String>,
    /// The exact lever.
    pub exact: ExactReport,
    /// The lossy lever.
    pub local: Option<LocalReport>,
}

impl Budget {
    /// Measures: placement on `model`, whose layers lie on a device behind a link, and local layers on `cpu`, the same weights without the
    /// device, which computes the same and sooner. `progress` is told what is being done and the share of it that is done.
    ///
    /// # Errors
    /// When a run is not possible, or when it would prove nothing.
    pub fn run(
        &self,
        model: &Model,
        cpu: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<BudgetReport, GateError> {
        subject::check(model)?;
        let exact = self.exact.run(model, &mut progress)?;
        let local = match &self.local {
            Some(lever) => Some(lever.run(cpu, &mut progress)?),
            None => None,
        };
        Ok(self.judge(exact, local))
    }

    fn judge(&self, exact: ExactReport, local: Option<LocalReport>) -> BudgetReport {
        let farthest = exact
            .splits
            .iter()
            .map(|split| (split.predicted_ms / split.measured_ms - 1.0).abs())
            .fold(0.0, f64::max);
        let fastest = exact
            .splits
            .iter()
            .map(|split| split.measured_ms)
            .fold(f64::INFINITY, f64::min);
        let slower = exact.splits[exact.chosen].measured_ms / fastest - 1.0;
        let mut checks = vec![
            (
                exact.splits.iter().all(|split| split.bits_equal),
                "every split computes the bits of the whole cache".to_owned(),
            ),
            (
                exact
                    .splits
                    .iter()
                    .all(|split| split.device_bytes <= exact.budget_bytes),
                "every split keeps to the budget".to_owned(),
            ),
            (
                farthest <= self.prediction_error,
                format!(
                    "a step takes what was reckoned: {:.1} % off at most, where {:.0} % is the limit",
                    100.0 * farthest,
                    100.0 * self.prediction_error
                ),
            ),
            (
                slower <= self.chosen_slower,
                format!(
                    "the chosen split is {:.1} % slower than the fastest, where {:.0} % is the limit",
                    100.0 * slower,
                    100.0 * self.chosen_slower
                ),
            ),
        ];
        if let Some(local) = &local {
            checks.extend(judge_local(local));
        }
        let verdict = if checks.iter().all(|(holds, _)| *holds) {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        BudgetReport {
            verdict,
            reasons: checks
                .into_iter()
                .map(|(holds, what)| format!("{}: {what}", if holds { "ok" } else { "FAILED" }))
                .collect(),
            exact,
            local,
        }
    }
}

/// A trial that cannot say no proves nothing; and local layers move nothing.
fn judge_local(local: &LocalReport) -> [(bool, String); 2] {
    let whole = local
        .trials
        .first()
        .is_some_and(|trial| !trial.rejected.is_empty());
    let moved: u64 = local.trials.iter().map(|trial| trial.tiles_tail).sum();
    [
        (
            whole,
            "all layers but one as local ones are rejected, so the trial can tell".to_owned(),
        ),
        (
            moved == 0,
            format!("local layers read {moved} tiles from a tail"),
        ),
    ]
}

/// Layers that keep every token in a cache of their own.
fn splittable(model: &Model) -> Result<Vec<u32>, GateError> {
    const CELLS: u32 = 256;
    let context = model.context(&ContextParams::new(CELLS));
    let residency = context.map_err(rolling_kv::Error::from)?.residency();
    let layers = residency.layers.iter().filter(|layer| !layer.sliding);
    Ok(layers.map(|layer| layer.layer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(predicted_ms: f64, measured_ms: f64) -> SplitResult {
        SplitResult::for_tests(predicted_ms, measured_ms)
    }

    fn judged(splits: Vec<SplitResult>, local: Option<LocalReport>) -> BudgetReport {
        let gate = Budget {
            exact: ExactLever::for_tests(),
            local: None,
            prediction_error: 0.15,
            chosen_slower: 0.05,
        };
        gate.judge(ExactReport::for_tests(splits), local)
    }

    #[test]
    fn what_holds_passes() {
        let report = judged(vec![split(10.0, 10.5), split(11.0, 10.4)], None);
        assert_eq!(report.verdict, Verdict::Pass, "{:?}", report.reasons);
    }

    #[test]
    fn each_claim_can_fail() {
        let mut other_bits = split(10.0, 10.0);
        other_bits.bits_equal = false;
        let mut too_much = split(10.0, 10.0);
        too_much.device_bytes = u64::MAX;
        for splits in [
            vec![other_bits],
            vec![too_much],
            vec![split(10.0, 12.0)],
            vec![split(10.0, 10.7), split(10.1, 10.0)],
        ] {
            let report = judged(splits, None);
            assert_eq!(report.verdict, Verdict::Fail, "{:?}", report.reasons);
        }
    }

    #[test]
    fn a_trial_that_cannot_say_no_is_no_pass() {
        let local = |rejected: Vec<String>, tiles_tail| LocalReport {
            order: Vec::new(),
            trials: vec![LocalTrial::for_tests(rejected, tiles_tail)],
            accepted: None,
        };
        let verdict = |local| judged(vec![split(1.0, 1.0)], Some(local)).verdict;
        assert_eq!(verdict(local(vec!["lost".into()], 0)), Verdict::Pass);
        assert_eq!(verdict(local(vec![], 0)), Verdict::Fail);
        assert_eq!(verdict(local(vec!["lost".into()], 3)), Verdict::Fail);
    }
}
