//! What the shift gate found, and how it is judged.

use serde::{Deserialize, Serialize};

use crate::shift::Stored;
use crate::shift_series::{ShiftPoint, ShiftSeries};
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ShiftThresholds {
    /// What a move may cost f16 keys, beyond what angles cost.
    pub f16_a_move: Threshold,
    /// What a move may cost q8_0 keys, beyond what angles cost.
    pub q8_0_a_move: Threshold,
    /// What angles may cost, a position.
    pub angle_a_position: Threshold,
    /// Error over that of llama.cpp.
    pub over_stock: Threshold,
}

impl Thresholds for ShiftThresholds {
    const GATE: &'static str = "shift";
}

/// Root mean square of the difference over that of the reference, one a way to keep keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShiftErrors {
    /// Where from, where to, and in how many moves.
    #[serde(flatten)]
    pub point: ShiftPoint,
    /// f32 in an ordinary cache, turned by llama.cpp, beside fresh ones.
    pub f32_stock: f64,
    /// f16 in an ordinary cache, turned by llama.cpp.
    pub f16_stock: f64,
    /// f16 in window and tail, turned by rolling-kv.
    pub f16: f64,
    /// q8_0 in an ordinary cache; absent where llama.cpp cannot turn it.
    pub q8_0_stock: Option<f64>,
    /// q8_0 in window and tail.
    pub q8_0: f64,
    /// The largest difference of one channel, f16 in window and tail.
    pub f16_max: f64,
    /// Fresh f32 keys at the target beside exact ones (angles in f64); absent where the model's angles are not plain.
    pub fresh_exact: Option<f64>,
    /// Fresh f32 keys at the origin beside exact ones: what no move can take back.
    pub origin_exact: Option<f64>,
}

impl ShiftErrors {
    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 12] = [
        "varied",
        "target",
        "step",
        "moves",
        "f16",
        "f16 max",
        "its stock",
        "q8_0",
        "its stock",
        "f32 stock",
        "fresh",
        "at origin",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 12] {
        let number =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2e}"));
        let point = &self.point;
        [
            format!("{:?}", point.series).to_lowercase(),
            point.target.to_string(),
            point.step.to_string(),
            point.count.to_string(),
            number(Some(self.f16)),
            number(Some(self.f16_max)),
            number(Some(self.f16_stock)),
            number(Some(self.q8_0)),
            number(self.q8_0_stock),
            number(Some(self.f32_stock)),
            number(self.fresh_exact),
            number(self.origin_exact),
        ]
    }
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ShiftReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// Keys compared at each point: tokens times layers.
    pub keys: usize,
    /// Fresh q8_0 keys beside fresh f32 ones: what that type loses without a move.
    pub q8_0_stored: f64,
    /// Fresh f16 keys beside fresh f32 ones.
    pub f16_stored: f64,
    /// Moves of 256 positions after which f16 keys are as far off as fresh q8_0 keys, by the growth with the square root of their count;
    /// absent where no point counts moves.
    pub moves_to_q8_0: Option<f64>,
    /// The points.
    pub points: Vec<ShiftErrors>,
}

/// What moves and angles alone would explain of an error.
struct Explained {
    /// Rounding once a move, and once a side when keys are stored: they add up as a random walk does.
    roundings: f64,
    /// Angles where keys are made, and where fresh ones are.
    angles: f64,
}

impl Explained {
    fn of(point: &ShiftPoint, a_position: f64) -> Self {
        let positions = f64::from(point.origin()) + f64::from(point.target);
        Self {
            roundings: (f64::from(point.count) + 2.0).sqrt(),
            angles: a_position * positions,
        }
    }

    /// What a rounding would have to cost to make up for the rest of the error.
    fn a_rounding(&self, error: f64) -> f64 {
        let rest = (error - self.angles) / self.roundings;
        if rest < 0.0 { 0.0 } else { rest }
    }
}

impl ShiftReport {
    /// Judges the worst of all points.
    pub(crate) fn judge(
        points: Vec<ShiftErrors>,
        stored: &Stored,
        thresholds: &ShiftThresholds,
    ) -> Self {
        let worst = |value: &dyn Fn(&ShiftErrors, &Explained) -> f64| {
            let a_position = thresholds.angle_a_position.value;
            points
                .iter()
                .map(|errors| value(errors, &Explained::of(&errors.point, a_position)))
                .fold(0.0, largest)
        };
        let over = |ours: f64, stock: Option<f64>| stock.map_or(0.0, |stock| ours / stock);
        let checks = vec![
            Check::at_most(
                "f16-a-move",
                &thresholds.f16_a_move,
                "f16, error a rounding beyond that of f32 angles",
                worst(&|errors, explained| explained.a_rounding(errors.f16)),
            ),
            Check::at_most(
                "q8-0-a-move",
                &thresholds.q8_0_a_move,
                "q8_0, error a rounding beyond that of f32 angles",
                worst(&|errors, explained| explained.a_rounding(errors.q8_0)),
            ),
            Check::at_most(
                "over-stock",
                &thresholds.over_stock,
                "f16, over llama.cpp's own error",
                worst(&|errors, _| over(errors.f16, Some(errors.f16_stock))),
            ),
            Check::at_most(
                "over-stock",
                &thresholds.over_stock,
                "q8_0, over llama.cpp's own error",
                worst(&|errors, _| over(errors.q8_0, errors.q8_0_stock)),
            ),
        ];
        let last = points
            .iter()
            .rfind(|errors| errors.point.series == ShiftSeries::Count);
        let moves_to_q8_0 = last.map(|last| {
            let a_move = last.f16 / f64::from(last.point.count).sqrt();
            (stored.q8_0 / a_move).powi(2)
        });
        let none = points.is_empty();
        Self {
            judged: Judged::new(if none { Vec::new() } else { checks }, Vec::new()),
            keys: stored.keys,
            q8_0_stored: stored.q8_0,
            f16_stored: stored.f16,
            moves_to_q8_0,
            points,
        }
    }
}

/// The larger one; what is no number is larger than any.
fn largest(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() {
        f64::NAN
    } else {
        one.max(other)
    }
}

#[cfg(test)]
impl ShiftReport {
    /// One move over 256 positions to 16, with these errors of f16 and q8_0; llama.cpp's are 3e-4 and 8e-3.
    pub(crate) fn for_tests(f16: f64, q8_0: f64, thresholds: &ShiftThresholds) -> Self {
        let mut point = crate::shift_series::points(300).into_iter();
        let point = point.rfind(|point| point.series == ShiftSeries::Count);
        let errors = point.into_iter().map(|point| ShiftErrors {
            point,
            f32_stock: 1e-6,
            f16_stock: 3e-4,
            f16,
            q8_0_stock: Some(8e-3),
            q8_0,
            f16_max: 1e-2,
            fresh_exact: Some(1e-7),
            origin_exact: None,
        });
        let stored = Stored {
            keys: 64,
            q8_0: 5e-3,
            f16: 2e-4,
        };
        Self::judge(errors.collect(), &stored, thresholds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn failed(f16: f64, q8_0: f64, change: impl Fn(&mut ShiftThresholds)) -> Vec<String> {
        let mut thresholds = ShiftThresholds::built_in().unwrap();
        change(&mut thresholds);
        let judged = ShiftReport::for_tests(f16, q8_0, &thresholds).judged;
        let failed = judged.checks.into_iter().filter(|check| !check.holds);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn roundings_pass_and_what_they_do_not_explain_fails() {
        assert!(failed(3e-4, 8e-3, |_| {}).is_empty());
        assert_eq!(failed(4e-4, 8e-3, |_| {}), ["over-stock"]);
        assert_eq!(failed(1e-3, 8e-3, |_| {}), ["f16-a-move", "over-stock"]);
        assert_eq!(failed(3e-4, 2e-2, |_| {}), ["q8-0-a-move", "over-stock"]);
        assert_eq!(failed(f64::NAN, 8e-3, |_| {}), ["f16-a-move", "over-stock"]);
    }

    #[test]
    fn a_changed_threshold_changes_the_verdict() {
        let looser = |t: &mut ShiftThresholds| t.over_stock.value = 1.5;
        assert!(failed(4e-4, 8e-3, looser).is_empty());
        let stricter = |t: &mut ShiftThresholds| t.f16_a_move.value = 1e-4;
        assert_eq!(failed(3e-4, 8e-3, stricter), ["f16-a-move"]);
        // Angles explain more of the error where each may cost more.
        let wider = |t: &mut ShiftThresholds| t.angle_a_position.value = 1e-5;
        assert_eq!(failed(1e-3, 8e-3, wider), ["over-stock"]);
    }

    #[test]
    fn nothing_moved_is_no_pass() {
        let stored = Stored {
            keys: 0,
            q8_0: 0.0,
            f16: 0.0,
        };
        let thresholds = ShiftThresholds::built_in().unwrap();
        let report = ShiftReport::judge(Vec::new(), &stored, &thresholds);
        assert_eq!(report.judged.verdict, Verdict::Fail);
    }
}
