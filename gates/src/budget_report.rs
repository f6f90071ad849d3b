//! What the budget gate found, and how it is judged.

use serde::{Deserialize, Serialize};

use crate::budget::{ExactReport, LocalReport, LocalTrial, SplitResult};
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged, and by which sets of layers are.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BudgetThresholds {
    /// How far a reckoned time may be from the measured one, as a share of it.
    pub prediction_error: Threshold,
    /// How much longer than the fastest split the chosen one may take, as a share.
    pub chosen_slower: Threshold,
    /// Mean score with a whole cache below which the model is too weak to tell anything.
    pub score_least: Threshold,
    /// Score that a question may lose, from 0 to 1.
    pub score_lost: Threshold,
    /// Nats that the right answer's log-probability may lose, mean over the questions.
    pub nats_lost: Threshold,
    /// Mean divergence of the next token's distribution, in nats.
    pub kld_mean: Threshold,
}

impl Thresholds for BudgetThresholds {
    const GATE: &'static str = "budget";
}

const MIB: f64 = 1_048_576.0;

impl SplitResult {
    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 8] = [
        "resident layers",
        "window of others",
        "device MiB",
        "tail MiB",
        "reckoned ms",
        "measured ms",
        "error",
        "bits",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 8] {
        [
            self.split.resident_layers.to_string(),
            self.split.window_cells.to_string(),
            format!("{:.1}", self.device_bytes as f64 / MIB),
            format!("{:.1}", self.tail_bytes / MIB),
            format!("{:.2}", self.predicted_ms),
            format!("{:.2}", self.measured_ms),
            format!(
                "{:.1}%",
                100.0 * (self.predicted_ms / self.measured_ms - 1.0)
            ),
            if self.bits_equal { "equal" } else { "differ" }.to_owned(),
        ]
    }
}

impl LocalTrial {
    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 7] = [
        "layers",
        "score",
        "whole",
        "nats lost",
        "KLD mean",
        "local MiB",
        "whole MiB",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 7] {
        [
            self.layers.len().to_string(),
            format!("{:.2}", self.score_local),
            format!("{:.2}", self.score_whole),
            format!("{:.3}", self.nats_lost),
            format!("{:.4}", self.kld_mean),
            format!("{:.1}", self.local_bytes as f64 / MIB),
            format!("{:.1}", self.whole_bytes as f64 / MIB),
        ]
    }

    /// Accepted, or why not.
    #[must_use]
    pub fn verdict(&self) -> String {
        if self.rejected.is_empty() {
            return "accepted".into();
        }
        format!("rejected: {}", self.rejected.join("; "))
    }
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct BudgetReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// The exact lever.
    pub exact: ExactReport,
    /// The lossy lever.
    pub local: Option<LocalReport>,
}

/// A claim that holds or does not: how often it fails must be this.
fn never(name: &str, what: &str, failures: usize) -> Check {
    let none = Threshold {
        value: 0.0,
        why: "placement changes no bit and local layers have no tail, so there is nothing to allow"
            .into(),
    };
    Check::at_most(name, &none, what, failures as f64)
}

impl BudgetReport {
    pub(crate) fn judge(
        exact: ExactReport,
        local: Option<LocalReport>,
        thresholds: &BudgetThresholds,
    ) -> Self {
        let splits = &exact.splits;
        let count = |wrong: fn(&SplitResult, u64) -> bool| {
            let budget = exact.budget_bytes;
            splits.iter().filter(|split| wrong(split, budget)).count()
        };
        let off = |split: &SplitResult| (split.predicted_ms / split.measured_ms - 1.0).abs();
        let fastest = splits.iter().map(|split| split.measured_ms);
        let fastest = fastest.fold(f64::INFINITY, f64::min);
        let mut checks = vec![
            never(
                "other-bits",
                "splits whose logits have other bits than those of the whole cache",
                count(|split, _| !split.bits_equal),
            ),
            never(
                "over-budget",
                "splits that take more than the budget",
                count(|split, budget| split.device_bytes > budget),
            ),
            Check::at_most(
                "prediction-error",
                &thresholds.prediction_error,
                "how far a reckoned step is off the measured one, at most",
                splits.iter().map(off).fold(0.0, f64::max),
            ),
            Check::at_most(
                "chosen-slower",
                &thresholds.chosen_slower,
                "how much slower than the fastest split the chosen one is",
                splits[exact.chosen].measured_ms / fastest - 1.0,
            ),
        ];
        let mut notes = Vec::new();
        if let Some(local) = &local {
            checks.extend(judge_local(local));
            notes.push("local layers change what the model says; placement does not".into());
        }
        Self {
            judged: Judged::new(checks, notes),
            exact,
            local,
        }
    }
}

/// A trial that cannot say no proves nothing; and local layers move nothing.
fn judge_local(local: &LocalReport) -> [Check; 2] {
    let told = local
        .trials
        .first()
        .is_some_and(|all| !all.rejected.is_empty());
    let moved: u64 = local.trials.iter().map(|trial| trial.tiles_tail).sum();
    [
        never(
            "cannot-tell",
            "sets of all layers but one that were accepted: then the questions cannot tell",
            usize::from(!told),
        ),
        never(
            "local-tiles",
            "tiles that local layers read from a tail",
            moved as usize,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn split(predicted_ms: f64, measured_ms: f64) -> SplitResult {
        SplitResult::for_tests(predicted_ms, measured_ms)
    }

    fn judged(splits: Vec<SplitResult>, local: Option<LocalReport>) -> Judged {
        let thresholds = BudgetThresholds::built_in().unwrap();
        BudgetReport::judge(ExactReport::for_tests(splits), local, &thresholds).judged
    }

    #[test]
    fn what_holds_passes() {
        let judged = judged(vec![split(10.0, 10.5), split(11.0, 10.4)], None);
        assert_eq!(judged.verdict, Verdict::Pass, "{:?}", judged.checks);
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
            vec![split(10.0, f64::NAN)],
            vec![split(10.0, 10.7), split(10.1, 10.0)],
        ] {
            let judged = judged(splits, None);
            assert_eq!(judged.verdict, Verdict::Fail, "{:?}", judged.checks);
        }
    }

    #[test]
    fn a_trial_that_cannot_say_no_is_no_pass() {
        let local = |rejected: Vec<String>, tiles_tail| LocalReport {
            order: Vec::new(),
            trials: vec![LocalTrial::for_tests(3, rejected, tiles_tail)],
            accepted: None,
        };
        let verdict = |local| judged(vec![split(1.0, 1.0)], Some(local)).verdict;
        assert_eq!(verdict(local(vec!["lost".into()], 0)), Verdict::Pass);
        assert_eq!(verdict(local(vec![], 0)), Verdict::Fail);
        assert_eq!(verdict(local(vec!["lost".into()], 3)), Verdict::Fail);
    }
}
