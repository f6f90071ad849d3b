//! What the needle gate makes of its answers.

use serde::Serialize;
use serde_json::Value;

use crate::error::GateError;
use crate::html::{Cell, Page, traffic_light};
use crate::niah::Asked;
use crate::verdict::Verdict;

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct NiahReport {
    /// Pass or fail.
    pub verdict: Verdict,
    /// Why, one line a threshold.
    pub reasons: Vec<String>,
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

/// A model that scores less with a resident cache has nothing to lose.
const ABLE: f64 = 0.5;

impl NiahReport {
    /// Judges what was asked. The score is reported; what is judged is whether both runs are equal.
    pub(crate) fn judge(asked: Vec<Asked>) -> Result<Self, GateError> {
        let mut tasks: Vec<&str> = Vec::new();
        for one in &asked {
            if !tasks.contains(&one.task.as_str()) {
                tasks.push(&one.task);
            }
        }
        let scores: Vec<TaskScore> = tasks
            .iter()
            .map(|task| {
                let of = || asked.iter().filter(|one| one.task == **task);
                let count = of().count() as f64;
                let resident = of().map(|one| one.resident.score).sum::<f64>() / count;
                TaskScore {
                    task: (*task).to_owned(),
                    resident,
                    spilled: of().map(|one| one.spilled.score).sum::<f64>() / count,
                    able: resident >= ABLE,
                }
            })
            .collect();
        if !scores.iter().any(|score| score.able) {
            let found = scores
                .iter()
                .map(|score| format!("{} {:.2}", score.task, score.resident))
                .collect::<Vec<_>>()
                .join(", ");
            return Err(GateError::TooWeak { found, least: ABLE });
        }

        let differ: Vec<String> = asked
            .iter()
            .filter(|one| !one.equal())
            .map(|one| format!("{} {} {}", one.task, one.length, one.spot))
            .collect();
        let mut reasons = vec![if differ.is_empty() {
            format!(
                "ok: all {} answers, and every logit on the way, are those of the resident cache",
                asked.len()
            )
        } else {
            format!(
                "FAILED: {} of {} questions differ from the resident cache, the first at {}",
                differ.len(),
                asked.len(),
                differ[0]
            )
        }];
        for score in scores.iter().filter(|score| !score.able) {
            reasons.push(format!(
                "note: the model scores {:.2} at {} with a resident cache, so its answers there could not show a loss; its logits are compared all the same",
                score.resident, score.task
            ));
        }
        let verdict = if differ.is_empty() {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        Ok(Self {
            verdict,
            reasons,
            scores,
            asked,
        })
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

    /// A page with the options and every table.
    #[must_use]
    pub fn html(&self, options: &Value) -> String {
        let mut page = Page::new("Needles in a haystack: resident and spilled");
        let (class, word) = match self.verdict {
            Verdict::Pass => ("pass", "PASS"),
            Verdict::Fail => ("fail", "FAIL"),
        };
        page.line(class, word);
        for reason in &self.reasons {
            page.line("note", reason);
        }
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
        page.heading("Options");
        page.code(&format!("{options:#}"));
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
    use crate::niah::Said;

    fn said(score: f64, digest: u64) -> Said {
        Said::for_tests("42", score, digest)
    }

    fn asked(task: &str, score: f64, digests: [u64; 2]) -> Asked {
        Asked::for_tests(task, said(score, digests[0]), said(score, digests[1]))
    }

    #[test]
    fn equal_runs_pass_and_one_other_bit_fails() {
        let report =
            NiahReport::judge(vec![asked("a", 1.0, [7, 7]), asked("b", 0.0, [7, 7])]).unwrap();
        assert_eq!(report.verdict, Verdict::Pass);
        assert!(report.reasons[1].contains("scores 0.00 at b"));
        let page = report.html(&serde_json::json!({"seed": 1}));
        assert!(page.contains("PASS") && page.contains("1.00 / 1.00 ="));

        let report = NiahReport::judge(vec![asked("a", 1.0, [7, 8])]).unwrap();
        assert_eq!(report.verdict, Verdict::Fail);
        assert!(report.reasons[0].contains("a 512 50%"));
        assert!(report.html(&Value::Null).contains("FAIL"));
    }

    #[test]
    fn a_model_that_can_do_nothing_proves_nothing() {
        let error = NiahReport::judge(vec![asked("a", 0.0, [7, 7])]).unwrap_err();
        assert!(error.to_string().contains("a 0.00"), "{error}");
    }
}
