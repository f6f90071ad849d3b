//! What the needle gate makes of its answers.

use serde::{Deserialize, Serialize};

use crate::engaged;
use crate::error::GateError;
use crate::html::{Cell, Page, traffic_light};
use crate::niah::{Asked, Said};
use crate::settings::Settings;
use crate::spec::Thresholds;
use crate::threshold::{Check, Judged, Threshold};

/// By which numbers the gate is judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NiahThresholds {
    /// Score with a resident cache, below which a model has nothing to lose.
    pub resident_score: Threshold,
    /// Questions at which a logit of the spilled run has other bits than that of the resident one.
    pub other_answers: Threshold,
}

impl Thresholds for NiahThresholds {
    const GATE: &'static str = "niah";
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct NiahReport {
    /// Pass or fail, and why.
    #[serde(skip)]
    pub judged: Judged,
    /// Who was to attend to the tail in steps of few tokens.
    pub engine: &'static str,
    /// Mean score of each task, resident and spilled, in the order of the tasks.
    pub scores: Vec<TaskScore>,
    /// Every question and what both runs said.
    pub asked: Vec<Asked>,
}

/// A task's mean score.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct TaskScore {
    /// RULER's name.
    pub task: String,
    /// With every cell in the window.
    pub resident: f64,
    /// With the window alone on the device.
    pub spilled: f64,
    /// Whether the model can do the task at all, so that a loss would show in its answers.
    pub able: bool,
}

/// Each task with the mean of its numbers, in the order in which they come.
fn means<'a>(scores: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
    let mut tasks: Vec<&str> = Vec::new();
    for (task, _) in scores {
        if !tasks.contains(task) {
            tasks.push(task);
        }
    }
    let mean = |task: &str| {
        let of = || scores.iter().filter(|(of, _)| *of == task);
        of().map(|(_, score)| score).sum::<f64>() / of().count() as f64
    };
    tasks.into_iter().map(|task| (task, mean(task))).collect()
}

/// The model can do one of the tasks with a resident cache; each score comes with its task.
pub(crate) fn able(scores: &[(&str, f64)], thresholds: &NiahThresholds) -> Result<(), GateError> {
    let means = means(scores);
    let least = thresholds.resident_score.value;
    if means.iter().any(|(_, mean)| *mean >= least) {
        return Ok(());
    }
    let found = means.iter().map(|(task, mean)| format!("{task} {mean:.2}"));
    let found = found.collect::<Vec<_>>().join(", ");
    Err(GateError::TooWeak { found, least })
}

impl NiahReport {
    /// Judges what was asked. The score is reported; what is judged is whether both runs are equal.
    pub(crate) fn judge(
        engine: &'static str,
        asked: Vec<Asked>,
        thresholds: &NiahThresholds,
    ) -> Self {
        let of = |score: fn(&Asked) -> f64| -> Vec<(&str, f64)> {
            let all = asked.iter().map(|one| (one.task.as_str(), score(one)));
            all.collect()
        };
        let resident = means(&of(|one| one.resident.score));
        let spilled = means(&of(|one| one.spilled.score));
        let scores: Vec<TaskScore> = resident
            .iter()
            .zip(spilled)
            .map(|((task, resident), (_, spilled))| TaskScore {
                task: (*task).to_owned(),
                resident: *resident,
                spilled,
                able: *resident >= thresholds.resident_score.value,
            })
            .collect();

        let differ = || asked.iter().filter(|one| !one.equal());
        let first = differ().next().map_or(String::new(), |one| {
            format!(", the first at {} {} {}", one.task, one.length, one.spot)
        });
        let best = scores.iter().map(|score| score.resident);
        let checks = vec![
            Check::at_least(
                "resident-score",
                &thresholds.resident_score,
                "score of the best task with a resident cache",
                best.fold(0.0, f64::max),
            ),
            Check::at_most(
                "other-answers",
                &thresholds.other_answers,
                format!(
                    "of {} questions, those whose answer or any logit on the way differs from the resident cache{first}",
                    asked.len()
                ),
                differ().count() as f64,
            ),
        ];
        let weak = scores.iter().filter(|score| !score.able);
        let notes = weak.map(|score| {
            format!(
                "the model scores {:.2} at {} with a resident cache, so its answers there could not show a loss; its logits are compared all the same",
                score.resident, score.task
            )
        });
        let tiles = |of: fn(&Said) -> u64| asked.iter().map(|one| of(&one.spilled)).sum();
        let (tail, host) = (tiles(|said| said.tiles_tail), tiles(|said| said.tiles_host));
        let notes = notes.chain(engaged::note(engine, tail, host));
        Self {
            judged: Judged::new(checks, notes.collect()),
            engine,
            scores,
            asked,
        }
    }

    /// The lengths and spots of a task, in the order in which they were asked.
    #[must_use]
    pub fn grid(&self, task: &str) -> (Vec<u32>, Vec<String>) {
        let (mut lengths, mut spots) = (Vec::new(), Vec::new());
        for one in self.asked.iter().filter(|one| one.task == task) {
            if !lengths.contains(&one.length) {
                lengths.push(one.length);
            }
            if !spots.contains(&one.spot) {
                spots.push(one.spot.clone());
            }
        }
        (lengths, spots)
    }

    /// What was asked of a task at a length and a spot.
    #[must_use]
    pub fn at(&self, task: &str, length: u32, spot: &str) -> Option<&Asked> {
        self.asked
            .iter()
            .find(|one| one.task == task && one.length == length && one.spot == spot)
    }

    /// A page with the verdict and every table.
    #[must_use]
    pub fn html(&self, settings: &Settings) -> String {
        let mut page = Page::new("Needles in a haystack: resident and spilled");
        page.verdict(&self.judged);
        for score in &self.scores {
            page.heading(&score.task);
            page.line(
                "note",
                &format!(
                    "mean score {:.2} resident, {:.2} spilled",
                    score.resident, score.spilled
                ),
            );
            self.table(&mut page, &score.task);
        }
        page.settings(settings);
        page.finish()
    }

    fn table(&self, page: &mut Page, task: &str) {
        let (lengths, spots) = self.grid(task);
        let head: Vec<String> = std::iter::once("tokens".to_owned())
            .chain(spots.iter().cloned())
            .collect();
        let rows: Vec<Vec<Cell>> = lengths
            .iter()
            .map(|&length| {
                let cells = spots
                    .iter()
                    .map(|spot| self.at(task, length, spot).map_or(Cell::plain("-"), shown));
                std::iter::once(Cell::plain(length.to_string()))
                    .chain(cells)
                    .collect()
            })
            .collect();
        page.table(
            "Score resident / spilled; = where every logit is equal. Point at a cell for the answers.",
            &head,
            &rows,
        );
    }
}

fn shown(asked: &Asked) -> Cell {
    let mark = if asked.equal() { "=" } else { "\u{2260}" };
    Cell {
        text: format!(
            "{:.2} / {:.2} {mark}",
            asked.resident.score, asked.spilled.score
        ),
        colour: Some(traffic_light(if asked.equal() {
            asked.resident.score
        } else {
            0.0
        })),
        more: format!(
            "wanted: {}\nresident: {}\nspilled: {}\nlog-probability of the right answer: {:.3} and {:.3} nats\nwindow {} of {} cells",
            asked.wanted.join(", "),
            asked.resident.answer,
            asked.spilled.answer,
            asked.resident.log_prob(),
            asked.spilled.log_prob(),
            asked.window_cells,
            asked.n_ctx
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_self_contained;
    use crate::verdict::Verdict;

    fn said(score: f64, digest: u64) -> Said {
        Said::for_tests("42", score, digest)
    }

    fn asked(task: &str, score: f64, digests: [u64; 2]) -> Asked {
        Asked::for_tests(task, said(score, digests[0]), said(score, digests[1]))
    }

    fn thresholds() -> NiahThresholds {
        NiahThresholds::built_in().unwrap()
    }

    fn page(report: &NiahReport) -> String {
        let options = vec![("seed".to_owned(), "1".to_owned())];
        report.html(&Settings::new(
            "gate niah".into(),
            None,
            options,
            Vec::new(),
        ))
    }

    #[test]
    fn equal_runs_pass_and_one_other_bit_fails() {
        let both = vec![asked("a", 1.0, [7, 7]), asked("b", 0.0, [7, 7])];
        let report = NiahReport::judge("auto", both, &thresholds());
        assert_eq!(report.judged.verdict, Verdict::Pass);
        assert!(report.judged.notes[0].contains("scores 0.00 at b"));
        let passed = page(&report);
        assert_self_contained(&passed);
        assert!(passed.contains("PASS") && passed.contains("1.00 / 1.00 ="));

        let report = NiahReport::judge("auto", vec![asked("a", 1.0, [7, 8])], &thresholds());
        assert_eq!(report.judged.verdict, Verdict::Fail);
        assert!(report.judged.lines()[1].contains("first at a 512 50%: 1 <= 0"));
        assert!(page(&report).contains("FAIL"));
    }

    #[test]
    fn a_model_that_can_do_nothing_proves_nothing() {
        let scores = [("a", 0.0), ("b", 0.25), ("a", 0.5)];
        let error = able(&scores, &thresholds()).unwrap_err().to_string();
        for word in ["a 0.25, b 0.25", "0.5 is the least", "next: "] {
            assert!(error.contains(word), "{error}");
        }
        assert!(able(&[("a", 0.0), ("b", 1.0)], &thresholds()).is_ok());
    }

    #[test]
    fn a_changed_threshold_changes_the_verdict() {
        let mut thresholds = thresholds();
        thresholds.resident_score.value = 0.1;
        assert!(able(&[("a", 0.25)], &thresholds).is_ok());
        thresholds.other_answers.value = 1.0;
        let report = NiahReport::judge("auto", vec![asked("a", 1.0, [7, 8])], &thresholds);
        assert_eq!(report.judged.verdict, Verdict::Pass);
        thresholds.resident_score.value = 1.1;
        assert!(able(&[("a", 1.0)], &thresholds).is_err());
    }
}
