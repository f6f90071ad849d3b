//! What the gate of the engines found, and how it is judged.

use serde::{Deserialize, Serialize};

use crate::decode_time::median;
#[cfg(test)]
use crate::engines_point::Rates;
use crate::engines_point::{EngineRun, EnginesLink, EnginesPoint};
use crate::error::GateError;
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EnginesThresholds {
    /// A step of the hybrid over the bound, at the worst point.
    pub hybrid_over_bound: Threshold,
    /// A step of the hybrid over the better of the two others, at the worst point.
    pub hybrid_over_better: Threshold,
    /// A step with the link alone over the longer of computing and copying, median over the points.
    pub stream_over_longer: Threshold,
    /// A step with the host alone over computing plus the host's reading, at the worst point.
    pub host_over_sum: Threshold,
    /// How far the choice that is left to the program lies from the hybrid, at the worst point, as a share of that.
    pub auto_off_hybrid: Threshold,
    /// Runs of which a logit has other bits than with every cell on the device.
    pub other_bits: Threshold,
}

impl Thresholds for EnginesThresholds {
    const GATE: &'static str = "engines";
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct EnginesReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// The links, in the order in which they were asked for.
    pub links: Vec<EnginesLink>,
}

/// What a reader must know of a reckoned time.
const RECKONED: &str = "the time is reckoned: the host takes its rate and nothing else, while on a machine of a few cores its threads and the arithmetic of a simulated device share them; a card's do not";

/// What a reader must know of a time that is not.
const BY_THE_CLOCK: &str = "the time is that of the clock on the wall: the host's threads and the arithmetic of the simulated device share the cores of this machine, so that neither runs at its rate";

/// Every point of every link.
#[derive(Clone, Copy)]
struct Points<'a>(&'a [EnginesLink]);

impl<'a> Points<'a> {
    fn all(self) -> impl Iterator<Item = (&'a EnginesLink, &'a EnginesPoint)> {
        let of = |link: &'a EnginesLink| link.points.iter().map(move |point| (link, point));
        self.0.iter().flat_map(of)
    }

    fn runs(self) -> impl Iterator<Item = EngineRun> {
        self.all().flat_map(|(_, point)| point.runs())
    }

    /// The largest of a number, and where it was found. What is no number is the largest of all.
    fn worst(
        self,
        name: &str,
        threshold: &Threshold,
        what: &str,
        of: fn(&EnginesPoint) -> f64,
    ) -> Check {
        let rank = |found: f64| if found.is_nan() { f64::INFINITY } else { found };
        let worst = self
            .all()
            .max_by(|(_, one), (_, other)| rank(of(one)).total_cmp(&rank(of(other))));
        let (place, found) = worst.map_or((String::new(), f64::NAN), |(link, point)| {
            let gb = link.rates.link_bytes_per_s / 1e9;
            let mib = point.tail_bytes / 1_048_576.0;
            let place = format!(", at worst, behind {gb} GB/s with {mib:.1} MiB of tail");
            (place, of(point))
        });
        Check::at_most(name, threshold, format!("{what}{place}"), found)
    }

    /// The median of a number.
    fn middle(
        self,
        name: &str,
        threshold: &Threshold,
        what: &str,
        of: fn(&EnginesPoint) -> f64,
    ) -> Check {
        let mut all: Vec<f64> = self.all().map(|(_, point)| of(point)).collect();
        let what = format!("{what}, median of {} points", all.len());
        Check::at_most(name, threshold, what, median(&mut all))
    }
}

impl EnginesReport {
    /// Judges the worst point of each kind, but for the link alone, which is judged by the median as the gate of the cliff judges it.
    ///
    /// # Errors
    /// When there is no point.
    pub fn judge(
        links: Vec<EnginesLink>,
        thresholds: &EnginesThresholds,
    ) -> Result<Self, GateError> {
        let points = Points(&links);
        if points.all().next().is_none() {
            return Err(GateError::NotEngaged);
        }
        let differ = points.runs().filter(|run| !run.bits_equal).count();
        let t = thresholds;
        let checks = vec![
            points.worst(
                "hybrid-over-bound",
                &t.hybrid_over_bound,
                "hybrid over (C + T/H)/(1 + L/H)",
                |point| point.hybrid.ms / point.bound_ms,
            ),
            points.worst(
                "hybrid-over-better",
                &t.hybrid_over_better,
                "hybrid over the better of stream and host",
                |point| point.hybrid.ms / point.better_ms(),
            ),
            points.middle(
                "stream-over-longer",
                &t.stream_over_longer,
                "stream over max(C, T/L)",
                |point| point.stream.ms / point.longer_ms(),
            ),
            points.worst(
                "host-over-sum",
                &t.host_over_sum,
                "host over C + T/H",
                |point| point.host.ms / point.sum_ms(),
            ),
            points.worst(
                "auto-off-hybrid",
                &t.auto_off_hybrid,
                "auto off hybrid by",
                |point| (point.auto.ms / point.hybrid.ms - 1.0).abs(),
            ),
            Check::at_most(
                "other-bits",
                &t.other_bits,
                format!(
                    "of {} runs with a tail, those with other bits than without one",
                    points.runs().count()
                ),
                differ as f64,
            ),
        ];
        let reckoned = links.iter().all(|link| link.reckoned);
        let note = if reckoned { RECKONED } else { BY_THE_CLOCK };
        Ok(Self {
            judged: Judged::new(checks, vec![note.to_owned()]),
            links,
        })
    }
}

#[cfg(test)]
impl EnginesReport {
    /// The point of [`EnginesPoint::for_tests`] alone.
    pub(crate) fn for_tests(
        ms: [f64; 4],
        thresholds: &EnginesThresholds,
    ) -> Result<Self, GateError> {
        let rates = Rates::for_tests();
        let point = EnginesPoint::for_tests(rates, ms)?;
        let link = EnginesLink {
            rates,
            reckoned: true,
            prompt_tokens: 100,
            compute_ms: point.compute_ms,
            points: vec![point],
        };
        Self::judge(vec![link], thresholds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn report(ms: [f64; 4]) -> EnginesReport {
        let thresholds = EnginesThresholds::built_in().unwrap();
        EnginesReport::for_tests(ms, &thresholds).unwrap()
    }

    fn failed(report: &EnginesReport) -> Vec<&str> {
        let failed = report.judged.checks.iter().filter(|check| !check.holds);
        failed.map(|check| check.name.as_str()).collect()
    }

    #[test]
    fn what_theory_says_passes_and_what_is_farther_off_fails() {
        assert_eq!(report([24.0, 12.0, 9.0, 9.0]).judged.verdict, Verdict::Pass);
        assert_eq!(report([24.5, 12.5, 9.5, 9.5]).judged.verdict, Verdict::Pass);
        assert_eq!(
            failed(&report([24.0, 12.0, 10.0, 10.0])),
            ["hybrid-over-bound"]
        );
        assert_eq!(
            failed(&report([26.0, 12.0, 9.0, 9.0])),
            ["stream-over-longer"]
        );
        assert_eq!(failed(&report([24.0, 13.5, 9.0, 9.0])), ["host-over-sum"]);
        assert_eq!(failed(&report([24.0, 12.0, 9.0, 9.5])), ["auto-off-hybrid"]);
        assert_eq!(
            failed(&report([24.0, 12.0, f64::NAN, 9.0])),
            ["hybrid-over-bound", "hybrid-over-better", "auto-off-hybrid"]
        );
    }

    #[test]
    fn a_hybrid_that_is_slower_than_one_of_the_others_fails() {
        let found = report([24.0, 9.2, 9.6, 9.6]);
        assert_eq!(failed(&found), ["hybrid-over-better"]);
    }

    #[test]
    fn one_run_with_other_bits_fails_and_is_counted() {
        let thresholds = EnginesThresholds::built_in().unwrap();
        let mut links = report([24.0, 12.0, 9.0, 9.0]).links;
        links[0].points[0].host.bits_equal = false;
        let found = EnginesReport::judge(links, &thresholds).unwrap();
        assert_eq!(failed(&found), ["other-bits"]);
        assert!(found.judged.lines()[5].contains("of 4 runs"));
    }

    #[test]
    fn a_changed_threshold_changes_the_verdict() {
        let mut thresholds = EnginesThresholds::built_in().unwrap();
        thresholds.hybrid_over_bound.value = 1.2;
        let found = EnginesReport::for_tests([24.0, 12.0, 10.0, 10.0], &thresholds).unwrap();
        assert_eq!(found.judged.verdict, Verdict::Pass);
    }

    #[test]
    fn no_point_proves_nothing() {
        let thresholds = EnginesThresholds::built_in().unwrap();
        let none = EnginesReport::judge(Vec::new(), &thresholds);
        assert!(matches!(none, Err(GateError::NotEngaged)));
    }

    #[test]
    fn a_reader_is_told_whose_time_it_is() {
        let thresholds = EnginesThresholds::built_in().unwrap();
        let mut links = report([24.0, 12.0, 9.0, 9.0]).links;
        links[0].reckoned = false;
        let found = EnginesReport::judge(links, &thresholds).unwrap();
        assert!(found.judged.notes[0].contains("clock on the wall"));
        assert!(report([24.0, 12.0, 9.0, 9.0]).judged.notes[0].contains("is reckoned"));
    }
}
