//! What the plan gate found, and how it is judged.

use rolling_kv::Rates;
use serde::{Deserialize, Serialize};

use crate::error::GateError;
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlanThresholds {
    /// How far a predicted step lies from the measured one, as a share of that; of the worst point.
    pub error: Threshold,
    /// How many cells the planned window lies from the one that a context chooses.
    pub window_off: Threshold,
}

impl Thresholds for PlanThresholds {
    const GATE: &'static str = "plan";
}

/// A window as planned, and as chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedWindow {
    /// Device memory that it may take, in MiB.
    pub target_mib: u64,
    /// Cells as planned.
    pub planned_cells: u32,
    /// Cells as a context chose.
    pub chosen_cells: u32,
}

/// One engine with one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanPoint {
    /// Who attends to the tail.
    pub engine: String,
    /// Cells of each layer in the window.
    pub window_cells: u32,
    /// Bytes of the tail that a step reads, as planned.
    pub tail_bytes: f64,
    /// Bytes that a step brought to the device.
    pub moved_bytes: f64,
    /// Bytes of the tail that the host read for a step.
    pub host_bytes: f64,
    /// A step as predicted, in milliseconds.
    pub predicted_ms: f64,
    /// A step as measured, in milliseconds.
    pub measured_ms: f64,
}

impl PlanPoint {
    /// How much longer the predicted step is than the measured one, as a share of that.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted_ms / self.measured_ms - 1.0
    }

    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 8] = [
        "engine",
        "window",
        "tail MiB",
        "moved MiB",
        "host MiB",
        "predicted",
        "measured",
        "error",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 8] {
        const MIB: f64 = 1_048_576.0;
        [
            self.engine.clone(),
            self.window_cells.to_string(),
            format!("{:.1}", self.tail_bytes / MIB),
            format!("{:.1}", self.moved_bytes / MIB),
            format!("{:.1}", self.host_bytes / MIB),
            format!("{:.3} ms", self.predicted_ms),
            format!("{:.3} ms", self.measured_ms),
            format!("{:+.1}%", 100.0 * self.error()),
        ]
    }
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// What was measured of the device, before anything was spoiled.
    pub rates: Rates,
    /// The window of half the cache.
    pub window: PlannedWindow,
    /// The largest error, without its sign.
    pub worst: f64,
    /// The points.
    pub points: Vec<PlanPoint>,
}

impl PlanReport {
    /// Judges the worst point, and the window.
    pub(crate) fn judge(
        rates: Rates,
        window: PlannedWindow,
        points: Vec<PlanPoint>,
        thresholds: &PlanThresholds,
    ) -> Result<Self, GateError> {
        if !points
            .iter()
            .any(|point| point.tail_bytes > 0.0 && point.moved_bytes + point.host_bytes > 0.0)
        {
            return Err(GateError::NotEngaged);
        }
        // One that is no number is the worst of all.
        let worse = |worst: f64, point: &PlanPoint| {
            let error = point.error().abs();
            if error.is_finite() {
                worst.max(error)
            } else {
                f64::INFINITY
            }
        };
        let worst = points.iter().fold(0.0, worse);
        let off = f64::from(window.planned_cells.abs_diff(window.chosen_cells));
        let checks = vec![
            Check::at_most(
                "error",
                &thresholds.error,
                format!(
                    "predicted off measured, worst of {} steps, by",
                    points.len()
                ),
                worst,
            ),
            Check::at_most(
                "window-off",
                &thresholds.window_off,
                format!(
                    "{} MiB give a window of {} cells as planned and of {} as chosen; cells off",
                    window.target_mib, window.planned_cells, window.chosen_cells
                ),
                off,
            ),
        ];
        Ok(Self {
            judged: Judged::new(checks, Vec::new()),
            rates,
            window,
            worst,
            points,
        })
    }
}

#[cfg(test)]
impl PlanReport {
    /// Two points of one engine; the second is predicted to take 10 ms.
    pub(crate) fn for_tests(measured_ms: f64, chosen_cells: u32) -> Result<Self, GateError> {
        let point = |tail_bytes: f64, predicted_ms, measured_ms| PlanPoint {
            engine: "stream".into(),
            window_cells: 128,
            tail_bytes,
            moved_bytes: tail_bytes,
            host_bytes: 0.0,
            predicted_ms,
            measured_ms,
        };
        let window = PlannedWindow {
            target_mib: 10,
            planned_cells: 256,
            chosen_cells,
        };
        let points = vec![point(0.0, 4.0, 4.0), point(6e6, 10.0, measured_ms)];
        Self::judge(
            Rates::default(),
            window,
            points,
            &PlanThresholds::built_in()?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn verdict(measured_ms: f64, chosen_cells: u32) -> Verdict {
        PlanReport::for_tests(measured_ms, chosen_cells)
            .unwrap()
            .judged
            .verdict
    }

    #[test]
    fn a_near_prediction_passes_and_a_far_one_or_none_fails() {
        assert_eq!(verdict(10.0, 256), Verdict::Pass);
        assert_eq!(verdict(9.0, 256), Verdict::Pass);
        for measured_ms in [8.0, 12.5, 5.0, 20.0, f64::NAN, 0.0] {
            assert_eq!(verdict(measured_ms, 256), Verdict::Fail, "{measured_ms}");
        }
    }

    #[test]
    fn another_window_than_the_planned_one_fails() {
        assert_eq!(verdict(10.0, 128), Verdict::Fail);
    }

    #[test]
    fn no_tail_proves_nothing() {
        let window = PlannedWindow {
            target_mib: 1,
            planned_cells: 1,
            chosen_cells: 1,
        };
        let thresholds = PlanThresholds::built_in().unwrap();
        let none = PlanReport::judge(Rates::default(), window, Vec::new(), &thresholds);
        assert!(matches!(none, Err(GateError::NotEngaged)));
    }
}
