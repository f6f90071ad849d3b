//! What the cliff gate found, and how it is judged.

use serde::{Deserialize, Serialize};

use crate::decode_time::median;
use crate::error::GateError;
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CliffThresholds {
    /// A step with the ring over the longer of computing and copying.
    pub ring_over_ideal: Threshold,
    /// How far a step with copies that wait lies from computing plus copying, as a share of that.
    pub op_off_sum: Threshold,
}

impl Thresholds for CliffThresholds {
    const GATE: &'static str = "cliff";
}

/// One length of the tail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CliffPoint {
    /// Cells of each layer in the window.
    pub window_cells: u32,
    /// Bytes of the tail that a step brings to the device.
    pub tail_bytes: f64,
    /// A step with every cell on the device: what computing takes, in milliseconds.
    pub compute_ms: f64,
    /// What the link takes for the tail by its set bandwidth, in milliseconds.
    pub copy_ms: f64,
    /// A step with the ring, in milliseconds.
    pub ring_ms: f64,
    /// A step with copies that wait for their layer, in milliseconds.
    pub op_ms: f64,
    /// Times a step that the ring was not there yet.
    pub ring_stalls: f64,
    /// Slots of the ring.
    pub ring_depth: u64,
    /// Bytes of one slot.
    pub slot_bytes: u64,
}

impl CliffPoint {
    /// The best that any schedule can do: copies hidden behind the computing, or the other way round.
    #[must_use]
    pub fn ideal_ms(&self) -> f64 {
        self.compute_ms.max(self.copy_ms)
    }

    /// What a schedule takes that hides nothing.
    #[must_use]
    pub fn sum_ms(&self) -> f64 {
        self.compute_ms + self.copy_ms
    }
}

impl CliffPoint {
    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 10] = [
        "window",
        "tail MiB",
        "compute ms",
        "copy ms",
        "max ms",
        "ring ms",
        "ring/max",
        "sum ms",
        "op ms",
        "op/sum",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 10] {
        const MIB: f64 = 1_048_576.0;
        [
            self.window_cells.to_string(),
            format!("{:.1}", self.tail_bytes / MIB),
            format!("{:.2}", self.compute_ms),
            format!("{:.2}", self.copy_ms),
            format!("{:.2}", self.ideal_ms()),
            format!("{:.2}", self.ring_ms),
            format!("{:.3}", self.ring_ms / self.ideal_ms()),
            format!("{:.2}", self.sum_ms()),
            format!("{:.2}", self.op_ms),
            format!("{:.3}", self.op_ms / self.sum_ms()),
        ]
    }
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CliffReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// Bandwidth of the link, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Slots of the ring, and bytes of one.
    pub ring_depth: u64,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Median over the points with a tail of ring time over the ideal.
    pub ring_over_ideal: f64,
    /// Median over the points with a tail of op time over computing plus copying.
    pub op_over_sum: f64,
    /// Longest tail that the ring hides: its step takes hardly longer than computing, by the same threshold. In bytes.
    pub hidden_bytes: f64,
    /// The points, from no tail to no window.
    pub points: Vec<CliffPoint>,
}

impl CliffReport {
    /// Judges the medians over the points with a tail.
    pub(crate) fn judge(
        link_bytes_per_s: f64,
        prompt_tokens: usize,
        points: Vec<CliffPoint>,
        thresholds: &CliffThresholds,
    ) -> Result<Self, GateError> {
        let with_tail = || points.iter().filter(|point| point.tail_bytes > 0.0);
        let last = with_tail().next_back().ok_or(GateError::NotEngaged)?;
        let (ring_depth, slot_bytes) = (last.ring_depth, last.slot_bytes);
        let middle = |share: fn(&CliffPoint) -> f64| {
            let mut shares: Vec<f64> = with_tail().map(share).collect();
            median(&mut shares)
        };
        let ring_over_ideal = middle(|point| point.ring_ms / point.ideal_ms());
        let op_over_sum = middle(|point| point.op_ms / point.sum_ms());
        let limit = thresholds.ring_over_ideal.value;
        let hidden_bytes = points
            .iter()
            .take_while(|point| point.ring_ms <= limit * point.compute_ms)
            .last()
            .map_or(0.0, |point| point.tail_bytes);
        let checks = vec![
            Check::at_most(
                "ring-over-ideal",
                &thresholds.ring_over_ideal,
                "ring over max(compute, copy)",
                ring_over_ideal,
            ),
            Check::at_most(
                "op-off-sum",
                &thresholds.op_off_sum,
                format!("op over compute + copy is {op_over_sum:.3}; off 1 by"),
                (op_over_sum - 1.0).abs(),
            ),
        ];
        Ok(Self {
            judged: Judged::new(checks, Vec::new()),
            link_bytes_per_s,
            prompt_tokens,
            ring_depth,
            slot_bytes,
            ring_over_ideal,
            op_over_sum,
            hidden_bytes,
            points,
        })
    }
}

#[cfg(test)]
impl CliffReport {
    /// Two points, the second with a tail; a step takes 4 ms of computing and 6 of copying.
    pub(crate) fn for_tests(
        ring_ms: f64,
        op_ms: f64,
        thresholds: &CliffThresholds,
    ) -> Result<Self, GateError> {
        let point = |tail_bytes: f64, copy_ms, ring_ms, op_ms| CliffPoint {
            window_cells: 128,
            tail_bytes,
            compute_ms: 4.0,
            copy_ms,
            ring_ms,
            op_ms,
            ring_stalls: 0.0,
            ring_depth: 3,
            slot_bytes: 1024,
        };
        let points = vec![point(0.0, 0.0, 4.0, 4.0), point(6.0e6, 6.0, ring_ms, op_ms)];
        Self::judge(1.0e9, 100, points, thresholds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn verdict(ring_ms: f64, op_ms: f64, change: impl Fn(&mut CliffThresholds)) -> Verdict {
        let mut thresholds = CliffThresholds::built_in().unwrap();
        change(&mut thresholds);
        let report = CliffReport::for_tests(ring_ms, op_ms, &thresholds).unwrap();
        report.judged.verdict
    }

    #[test]
    fn the_longer_of_the_two_and_the_sum_pass_and_what_is_farther_off_fails() {
        assert_eq!(verdict(6.0, 10.0, |_| {}), Verdict::Pass);
        assert_eq!(verdict(6.4, 10.0, |_| {}), Verdict::Fail);
        assert_eq!(verdict(6.0, 8.5, |_| {}), Verdict::Fail);
        assert_eq!(verdict(6.0, 11.5, |_| {}), Verdict::Fail);
        assert_eq!(verdict(f64::NAN, 10.0, |_| {}), Verdict::Fail);
    }

    #[test]
    fn a_changed_threshold_changes_the_verdict() {
        let looser = |t: &mut CliffThresholds| t.ring_over_ideal.value = 1.2;
        assert_eq!(verdict(6.4, 10.0, looser), Verdict::Pass);
        let stricter = |t: &mut CliffThresholds| t.op_off_sum.value = 0.01;
        assert_eq!(verdict(6.0, 10.3, stricter), Verdict::Fail);
    }

    #[test]
    fn no_tail_proves_nothing() {
        let thresholds = CliffThresholds::built_in().unwrap();
        let none = CliffReport::judge(1.0e9, 100, Vec::new(), &thresholds);
        assert!(matches!(none, Err(GateError::NotEngaged)));
    }
}
