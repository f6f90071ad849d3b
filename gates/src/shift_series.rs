//! The moves that the shift gate makes: one thing varies in each series.

use serde::{Deserialize, Serialize};

/// What a series varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ShiftSeries {
    /// One move to the same target, from ever farther away.
    Distance,
    /// One move over the same distance, to ever higher targets.
    Target,
    /// The same way to the same target, in ever more moves.
    Parts,
    /// Ever more moves over the same distance, to the same target.
    Count,
}

/// Moves of tokens from one position to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShiftPoint {
    /// What the point belongs to.
    pub series: ShiftSeries,
    /// Position that is reached.
    pub target: i32,
    /// Positions of each move, downwards.
    pub step: i32,
    /// Moves.
    pub count: i32,
}

impl ShiftPoint {
    /// Position at which the keys were made.
    #[must_use]
    pub fn origin(&self) -> i32 {
        self.target + self.step * self.count
    }

    /// What its results are called.
    #[must_use]
    pub fn name(&self) -> String {
        let series = format!("{:?}", self.series).to_lowercase();
        format!(
            "{series}, to {}, {} x {}",
            self.target, self.count, self.step
        )
    }

    /// What the series varies.
    #[must_use]
    pub fn varied(&self) -> f64 {
        f64::from(match self.series {
            ShiftSeries::Distance => self.step,
            ShiftSeries::Target => self.target,
            ShiftSeries::Parts | ShiftSeries::Count => self.count,
        })
    }
}

/// The target where it does not vary: angles there are small.
const TARGET: i32 = 16;
/// The distance where it does not vary.
const STEP: i32 = 256;
/// The way that is cut into parts; every count of [`COUNTS`] divides it.
const WAY: i32 = 51_200;
const COUNTS: [i32; 7] = [1, 2, 5, 10, 20, 50, 100];

/// All points. `most` bounds the positions.
pub fn points(most: i32) -> Vec<ShiftPoint> {
    let point = |series, target, step, count| ShiftPoint {
        series,
        target,
        step,
        count,
    };
    let magnitudes = || (0..=5).map(|power| 10i32.pow(power));
    let distance = magnitudes().map(|step| point(ShiftSeries::Distance, TARGET, step, 1));
    let target = magnitudes().map(|target| point(ShiftSeries::Target, target, STEP, 1));
    let parts = COUNTS.map(|count| point(ShiftSeries::Parts, TARGET, WAY / count, count));
    let count = COUNTS.map(|count| point(ShiftSeries::Count, TARGET, STEP, count));
    let all = distance.chain(target).chain(parts).chain(count);
    all.filter(|point| point.origin() <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_varies_in_each_series() {
        let all = points(i32::MAX);
        let of = |series| all.iter().filter(move |point| point.series == series);
        for series in [
            ShiftSeries::Distance,
            ShiftSeries::Target,
            ShiftSeries::Parts,
            ShiftSeries::Count,
        ] {
            let values: Vec<f64> = of(series).map(ShiftPoint::varied).collect();
            assert!(values.is_sorted() && values.len() >= 6, "{series:?}");
        }
        assert!(of(ShiftSeries::Parts).all(|point| point.origin() == TARGET + WAY));
        assert_eq!(of(ShiftSeries::Target).next_back().unwrap().target, 100_000);
        assert_eq!(of(ShiftSeries::Distance).next_back().unwrap().step, 100_000);
        assert_eq!(of(ShiftSeries::Count).next_back().unwrap().count, 100);
    }

    #[test]
    fn no_two_points_have_one_name() {
        let mut names: Vec<String> = points(i32::MAX).iter().map(ShiftPoint::name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn positions_are_bounded() {
        assert!(points(10_000).iter().all(|point| point.origin() <= 10_000));
    }
}
