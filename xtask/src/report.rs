//! A run of several steps: each is announced and timed, and a table says at the end what passed, failed or was skipped.

use std::fmt;
use std::ops::AddAssign;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::error::Result;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ran and were right.
    pub passed: u64,
    /// Ran and were wrong.
    pub failed: u64,
    /// Did not run.
    pub skipped: u64,
}

impl Counts {
    /// One thing that passed.
    pub const ONE: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };

    /// `passed` that passed, `failed` that failed.
    pub fn new(passed: u64, failed: u64, skipped: u64) -> Self {
        Self {
            passed,
            failed,
            skipped,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran; a count of failures other than zero makes it red.
    Ran(Counts),
    /// It could not run, and why.
    Skipped(String),
}

impl Outcome {
    /// A step that is one check, and passed.
    pub fn passed() -> Self {
        Self::Ran(Counts::ONE)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    Skip,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    verdict: Verdict,
    counts: Counts,
    took: Duration,
    note: String,
}

/// The steps of one run, with what came of them.
#[derive(Debug)]
pub struct Report {
    rows: Vec<Row>,
    started: Instant,
}

impl Report {
    /// A run without steps yet.
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Announces and runs a step. Answers whether later steps may build on it: false only if it failed.
    pub fn step(&mut self, name: &'static str, body: impl FnOnce() -> Result<Outcome>) -> bool {
        eprintln!("\n== step: {name}");
        let started = Instant::now();
        let (verdict, counts, note) = match body() {
            Ok(Outcome::Ran(counts)) if counts.failed == 0 => {
                (Verdict::Pass, counts, String::new())
            }
            Ok(Outcome::Ran(counts)) => {
                (Verdict::Fail, counts, format!("{} failed", counts.failed))
            }
            Ok(Outcome::Skipped(why)) => {
                println!("SKIP: {name}: {why}");
                (Verdict::Skip, Counts::new(0, 0, 1), why)
            }
            Err(error) => {
                eprintln!("error: {error}");
                (
                    Verdict::Fail,
                    Counts::new(0, 1, 0),
                    first_line(&error.to_string()),
                )
            }
        };
        let took = started.elapsed();
        eprintln!(
            "== {}: {name} in {:.1} s",
            label(verdict),
            took.as_secs_f64()
        );
        self.rows.push(Row {
            name,
            verdict,
            counts,
            took,
            note,
        });
        verdict != Verdict::Fail
    }

    /// Records that a step did not run because `needed` failed.
    pub fn blocked(&mut self, name: &'static str, needed: &str) {
        let note = format!("{needed} failed");
        println!("SKIP: {name}: {note}");
        self.rows.push(Row {
            name,
            verdict: Verdict::Skip,
            counts: Counts::new(0, 0, 1),
            took: Duration::ZERO,
            note,
        });
    }

    /// All counts together.
    pub fn totals(&self) -> Counts {
        let mut sum = Counts::default();
        self.rows.iter().for_each(|row| sum += row.counts);
        sum
    }

    /// Whether no step failed and at least one passed.
    pub fn is_green(&self) -> bool {
        let none_failed = self.rows.iter().all(|row| row.verdict != Verdict::Fail);
        none_failed && self.rows.iter().any(|row| row.verdict == Verdict::Pass)
    }

    /// Prints the table and, as the very last line, the sum of the counts.
    pub fn finish(self) -> ExitCode {
        println!("\n{self}");
        println!("total: {}", self.totals());
        if self.is_green() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(4);
        writeln!(
            f,
            "{:<width$}  result  passed  failed  skipped      time",
            "step"
        )?;
        for row in &self.rows {
            let Counts {
                passed,
                failed,
                skipped,
            } = row.counts;
            write!(
                f,
                "{:<width$}  {:<6}  {passed:>6}  {failed:>6}  {skipped:>7}  {:>6.1} s",
                row.name,
                label(row.verdict),
                row.took.as_secs_f64()
            )?;
            writeln!(
                f,
                "{}",
                if row.note.is_empty() {
                    String::new()
                } else {
                    format!("  ({})", row.note)
                }
            )?;
        }
        write!(
            f,
            "{:<width$}  {:<6}  {:>6}  {:>6}  {:>7}  {:>6.1} s",
            "all",
            "",
            "",
            "",
            "",
            self.started.elapsed().as_secs_f64()
        )
    }
}

fn label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Skip => "SKIP",
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn counts_of_steps_are_summed() {
        let mut report = Report::new();
        assert!(report.step("a", || Ok(Outcome::Ran(Counts::new(3, 0, 1)))));
        assert!(report.step("b", || Ok(Outcome::Skipped("no valgrind".into()))));
        assert_eq!(report.totals().to_string(), "3 passed, 0 failed, 2 skipped");
        assert!(report.is_green());
    }

    #[test]
    fn a_failing_count_or_an_error_turns_it_red_and_the_rest_goes_on() {
        let mut report = Report::new();
        assert!(!report.step("count", || Ok(Outcome::Ran(Counts::new(9, 1, 0)))));
        assert!(!report.step("error", || Err(Error::wrong("broken", "mend it"))));
        assert!(report.step("fine", || Ok(Outcome::passed())));
        assert_eq!(report.totals(), Counts::new(10, 2, 0));
        assert!(!report.is_green());
    }

    #[test]
    fn a_run_in_which_nothing_passed_is_not_green() {
        let mut report = Report::new();
        report.step("only", || Ok(Outcome::Skipped("missing".into())));
        assert!(!report.is_green());
        assert!(!Report::new().is_green());
    }

    #[test]
    fn a_blocked_step_names_what_it_needed() {
        let mut report = Report::new();
        report.blocked("smoke", "native build");
        assert_eq!(report.totals(), Counts::new(0, 0, 1));
        assert!(report.to_string().contains("(native build failed)"));
    }
}
