//! What the logit gate found, and how it is judged.

use serde::{Deserialize, Serialize};

use crate::engaged;
use crate::metrics::Comparison;
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold, number};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogitEquivThresholds {
    /// Mean divergence from stock over that of stock from itself.
    pub floor_factor: Threshold,
    /// Mean divergence in nats that is none.
    pub floor_least: Threshold,
    /// With a quantised cache: mean divergence from a cache of f16, over that of stock's own quantised cache.
    pub type_factor: Threshold,
    /// Logits of a spilled run with other bits than those of the resident one.
    pub other_bits: Threshold,
}

impl Thresholds for LogitEquivThresholds {
    const GATE: &'static str = "logit-equiv";
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LogitEquivReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens decoded one by one.
    pub decoded_tokens: usize,
    /// How much each next token of the text surprises llama.cpp's own attention, mean, in nats.
    pub surprise_nats: f64,
    /// The same for a guess that takes every token for as probable.
    pub guess_nats: f64,
    /// Type of the tail's rows, where it is not the window's.
    pub tail_type: Option<String>,
    /// Two runs of llama.cpp's own attention, with other thread counts and ubatches: the noise floor.
    pub stock_vs_stock: Comparison,
    /// The resident tiled run against llama.cpp's own attention.
    pub resident_vs_stock: Comparison,
    /// With a quantised cache: both against llama.cpp's own attention over a cache of f16.
    pub of_f16: Option<OfF16>,
    /// Who was to attend to the tail in steps of few tokens.
    pub engine: &'static str,
    /// The spilled runs.
    pub spilled: Vec<SpilledRun>,
    /// The positions that are compared.
    pub positions: Vec<usize>,
}

/// Runs with a quantised cache against llama.cpp's own attention over a cache of f16. Stock rounds each query to 8 bits before it
/// multiplies it with a quantised K, alike in every run, so that it repeats itself and is off all the same; ours does not.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct OfF16 {
    /// llama.cpp's own attention.
    pub stock: Comparison,
    /// The resident tiled run.
    pub resident: Comparison,
}

/// A run with a window.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SpilledRun {
    /// Cells of the window as it was made.
    pub window_cells: u32,
    /// Against llama.cpp's own attention.
    pub vs_stock: Comparison,
    /// Against the resident tiled run.
    pub vs_resident: Comparison,
    /// With a quantised cache: against llama.cpp's own attention over a cache of f16.
    pub vs_f16: Option<Comparison>,
    /// Where its cache lay and what its attention did, in words.
    pub residency: String,
    /// Tiles read from a tail.
    pub tiles_tail: u64,
    /// Of them, those that the host attended to for a device.
    pub tiles_host: u64,
}

impl LogitEquivReport {
    /// Every comparison and what it is called.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &Comparison)> {
        let mut rows = vec![
            ("stock against stock".to_owned(), &self.stock_vs_stock),
            ("resident against stock".to_owned(), &self.resident_vs_stock),
        ];
        if let Some(of_f16) = &self.of_f16 {
            rows.push(("stock against stock of f16".to_owned(), &of_f16.stock));
            rows.push(("resident against stock of f16".to_owned(), &of_f16.resident));
        }
        for run in &self.spilled {
            let window = run.window_cells;
            rows.push((format!("window {window} against stock"), &run.vs_stock));
            rows.push((
                format!("window {window} against resident"),
                &run.vs_resident,
            ));
        }
        rows
    }

    /// Mean divergence from stock that is judged as its noise, in nats.
    #[must_use]
    pub fn floor(&self, thresholds: &LogitEquivThresholds) -> f64 {
        let noise = self.stock_vs_stock.kld_mean * thresholds.floor_factor.value;
        noise.max(thresholds.floor_least.value)
    }

    pub(crate) fn judge(mut self, thresholds: &LogitEquivThresholds) -> Self {
        let at_floor = |who: &str,
                        found: &Comparison,
                        of_f16: Option<&Comparison>,
                        window: &str| {
            if let (Some(stock), Some(found)) = (&self.of_f16, of_f16) {
                return Check::at_most(
                    "type-factor",
                    &thresholds.type_factor,
                    format!(
                        "{who} is as near to a cache of f16 as stock's own quantised one{window}: mean KLD {:.3e}, over that of stock",
                        found.kld_mean
                    ),
                    found.kld_mean / stock.stock.kld_mean,
                );
            }
            let what = format!("{who} is at the noise floor of stock{window}: mean KLD ");
            self.at_floor(thresholds, what, found.kld_mean)
        };
        let mut checks = vec![at_floor(
            "resident",
            &self.resident_vs_stock,
            self.of_f16.as_ref().map(|of| &of.resident),
            "",
        )];
        for run in &self.spilled {
            let window = format!(" (window {})", run.window_cells);
            if self.tail_type.is_none() {
                checks.push(Check::at_most(
                    "other-bits",
                    &thresholds.other_bits,
                    format!("spilled and resident have the same bits{window}: logits that differ"),
                    run.vs_resident.bits_differ as f64,
                ));
            }
            checks.push(at_floor(
                "spilled",
                &run.vs_stock,
                run.vs_f16.as_ref(),
                &window,
            ));
        }
        let mut notes = Vec::new();
        if self.surprise_nats >= self.guess_nats {
            notes.push(format!(
                "the model foresees this text no better than a guess ({} nats a token, a guess {}); where its cache lies is compared all the same",
                number(self.surprise_nats),
                number(self.guess_nats)
            ));
        }
        if let Some(kind) = &self.tail_type {
            notes.push(format!(
                "the tail is of {kind} and the window is not: bits depend on where a cell lies and are not compared; the others are wholly of {kind}"
            ));
        }
        let tiles = |of: fn(&SpilledRun) -> u64| self.spilled.iter().map(of).sum();
        let (tail, host) = (tiles(|run| run.tiles_tail), tiles(|run| run.tiles_host));
        notes.extend(engaged::note(self.engine, tail, host));
        self.judged = Judged::new(checks, notes);
        self
    }

    /// The floor is some times the noise of stock, or, where stock hardly has any, a number of its own.
    fn at_floor(&self, thresholds: &LogitEquivThresholds, what: String, kld: f64) -> Check {
        let noise = self.stock_vs_stock.kld_mean;
        let floor = noise * thresholds.floor_factor.value;
        if floor.is_nan() || floor >= thresholds.floor_least.value {
            return Check::at_most(
                "floor-factor",
                &thresholds.floor_factor,
                format!("{what}{kld:.3e}, over that of stock against stock"),
                kld / noise,
            );
        }
        let what = format!("{what}in nats, where stock repeats itself");
        Check::at_most("floor-least", &thresholds.floor_least, what, kld)
    }
}

#[cfg(test)]
impl LogitEquivReport {
    /// A report of three positions over two tokens, in which ours is `ours` off stock, and stock `noise` off itself.
    pub(crate) fn for_tests(noise: f32, ours: f32, spilled: f32) -> Self {
        let rows = |off: f32| [0.0, 1.0 + off, 0.0, 2.0, 0.5, 0.0];
        let (stock, resident) = (rows(0.0), rows(ours));
        Self {
            judged: Judged::default(),
            prompt_tokens: 2,
            decoded_tokens: 1,
            tail_type: None,
            surprise_nats: 0.3,
            guess_nats: 2f64.ln(),
            engine: "auto",
            stock_vs_stock: Comparison::new(&stock, &rows(noise), 2),
            resident_vs_stock: Comparison::new(&stock, &resident, 2),
            of_f16: None,
            spilled: vec![SpilledRun {
                window_cells: 64,
                vs_stock: Comparison::new(&stock, &rows(ours + spilled), 2),
                vs_resident: Comparison::new(&resident, &rows(ours + spilled), 2),
                vs_f16: None,
                residency: "half of it".into(),
                tiles_tail: 1,
                tiles_host: 0,
            }],
            positions: vec![0, 1, 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn judged(report: LogitEquivReport, change: impl Fn(&mut LogitEquivThresholds)) -> Judged {
        let mut thresholds = LogitEquivThresholds::built_in().unwrap();
        change(&mut thresholds);
        report.judge(&thresholds).judged
    }

    fn failed(judged: &Judged) -> Vec<&str> {
        let failed = judged.checks.iter().filter(|check| !check.holds);
        failed.map(|check| check.name.as_str()).collect()
    }

    #[test]
    fn what_is_no_farther_off_than_stock_from_itself_passes() {
        let found = judged(LogitEquivReport::for_tests(0.1, 0.1, 0.0), |_| {});
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.lines());
        assert_eq!(found.checks.len(), 3);
        assert!((found.checks[0].found - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_other_bit_fails_and_so_does_a_divergence_above_the_floor() {
        let found = judged(LogitEquivReport::for_tests(0.1, 0.1, 1e-6), |_| {});
        assert_eq!(failed(&found), ["other-bits"]);
        let found = judged(LogitEquivReport::for_tests(0.1, 0.4, 0.0), |_| {});
        assert_eq!(failed(&found), ["floor-factor", "floor-factor"]);
        let found = judged(LogitEquivReport::for_tests(0.0, 0.1, 0.0), |_| {});
        assert_eq!(failed(&found), ["floor-least", "floor-least"]);
    }

    #[test]
    fn a_quantised_cache_is_judged_by_how_far_stock_is_off_one_of_f16() {
        let with = |stock: f32, ours: f32| {
            let mut report = LogitEquivReport::for_tests(0.0, 0.1, 0.0);
            let of = |off: f32| LogitEquivReport::for_tests(off, 0.0, 0.0).stock_vs_stock;
            report.spilled[0].vs_f16 = Some(of(ours));
            report.of_f16 = Some(OfF16 {
                stock: of(stock),
                resident: of(ours),
            });
            judged(report, |_| {})
        };
        assert_eq!(with(0.1, 0.1).verdict, Verdict::Pass);
        assert_eq!(with(0.1, 0.05).verdict, Verdict::Pass);
        assert_eq!(failed(&with(0.1, 0.2)), ["type-factor", "type-factor"]);
    }

    #[test]
    fn a_changed_threshold_changes_the_verdict() {
        let report = LogitEquivReport::for_tests(0.1, 0.1, 0.0);
        let found = judged(report, |thresholds| thresholds.floor_factor.value = 0.5);
        assert_eq!(failed(&found), ["floor-factor", "floor-factor"]);
        let report = LogitEquivReport::for_tests(0.1, 0.4, 1e-3);
        let found = judged(report, |thresholds| {
            thresholds.floor_factor.value = 100.0;
            thresholds.other_bits.value = 1.0;
        });
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.lines());
    }

    #[test]
    fn what_is_no_number_fails() {
        let mut report = LogitEquivReport::for_tests(0.1, 0.1, 0.0);
        report.resident_vs_stock.kld_mean = f64::NAN;
        assert_eq!(failed(&judged(report, |_| {})), ["floor-factor"]);
        let mut report = LogitEquivReport::for_tests(0.1, 0.1, 0.0);
        report.stock_vs_stock.kld_mean = f64::NAN;
        assert_eq!(judged(report, |_| {}).verdict, Verdict::Fail);
    }

    #[test]
    fn a_model_that_foresees_nothing_is_named() {
        let mut report = LogitEquivReport::for_tests(0.1, 0.1, 0.0);
        report.surprise_nats = 0.8;
        let found = judged(report, |_| {});
        assert!(found.notes[0].contains("no better than a guess"));
    }
}
