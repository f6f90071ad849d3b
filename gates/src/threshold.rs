//! Numbers by which a gate judges, and what it found beside them.

use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// A number by which a gate judges. They stand in `specs/`, each with its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// The number.
    pub value: f64,
    /// Why it is this one.
    pub why: String,
}

/// What was found beside a threshold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The threshold's name in the spec.
    pub name: String,
    /// What was found, in words.
    pub what: String,
    /// `<=` or `>=`: how what was found must lie to the threshold.
    pub sign: &'static str,
    /// The threshold.
    pub value: f64,
    /// Why it is this one.
    pub why: String,
    /// What was found.
    pub found: f64,
    /// Whether it lies as it must. What is no number never does.
    pub holds: bool,
}

impl Check {
    /// What may be found at most.
    pub(crate) fn at_most(
        name: &str,
        threshold: &Threshold,
        what: impl Into<String>,
        found: f64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            what: what.into(),
            sign: "<=",
            value: threshold.value,
            why: threshold.why.clone(),
            found,
            holds: found <= threshold.value,
        }
    }

    /// What must be found at least.
    pub(crate) fn at_least(
        name: &str,
        threshold: &Threshold,
        what: impl Into<String>,
        found: f64,
    ) -> Self {
        Self {
            sign: ">=",
            holds: found >= threshold.value,
            ..Self::at_most(name, threshold, what, found)
        }
    }

    /// One line for a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        let word = if self.holds { "ok" } else { "FAILED" };
        let (found, value) = self.numbers();
        format!("{word}: {}: {found} {} {value}", self.what, self.sign)
    }

    /// What was found and the threshold, as they are shown. Where rounding would hide that they differ, nothing is rounded.
    #[must_use]
    pub fn numbers(&self) -> (String, String) {
        let (found, value) = (number(self.found), number(self.value));
        if found == value && self.found != self.value {
            return (self.found.to_string(), self.value.to_string());
        }
        (found, value)
    }
}

/// A number with four digits or so.
pub fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e6 {
        return format!("{value}");
    }
    if (0.01..1e6).contains(&value.abs()) {
        let digits = format!("{value:.4}");
        return digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned();
    }
    format!("{value:.3e}")
}

/// A number with all of its digits.
pub fn exact(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// What a gate says, and why.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Judged {
    /// Pass or fail.
    pub verdict: Verdict,
    /// One threshold each.
    pub checks: Vec<Check>,
    /// What a reader should know beside them.
    pub notes: Vec<String>,
}

/// What is not judged yet did not pass.
impl Default for Judged {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl Judged {
    /// A pass is when every threshold holds, and there is one.
    pub(crate) fn new(checks: Vec<Check>, notes: Vec<String>) -> Self {
        let passes = !checks.is_empty() && checks.iter().all(|check| check.holds);
        Self {
            verdict: if passes { Verdict::Pass } else { Verdict::Fail },
            checks,
            notes,
        }
    }

    /// One line a threshold, then the notes.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        self.checks.iter().map(Check::line).chain(notes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(value: f64) -> Threshold {
        Threshold {
            value,
            why: "because".into(),
        }
    }

    #[test]
    fn what_lies_on_the_threshold_holds_and_what_is_no_number_does_not() {
        let at_most = |found| Check::at_most("n", &threshold(2.0), "w", found).holds;
        assert!(at_most(2.0) && !at_most(2.5) && !at_most(f64::NAN));
        let at_least = |found| Check::at_least("n", &threshold(0.5), "w", found).holds;
        assert!(at_least(0.5) && !at_least(0.4) && !at_least(f64::NAN));
    }

    #[test]
    fn a_line_has_both_numbers_and_never_two_that_look_alike() {
        let line = |found| Check::at_most("n", &threshold(2.0), "what", found).line();
        assert_eq!(line(0.0), "ok: what: 0 <= 2");
        assert_eq!(line(3.25), "FAILED: what: 3.25 <= 2");
        let near = Check::at_most("n", &threshold(1.05), "what", 1.050_000_1).line();
        assert_eq!(near, "FAILED: what: 1.0500001 <= 1.05");
        assert_eq!(line(1.000_001), "ok: what: 1 <= 2");
        assert_eq!(line(2.000_001), "FAILED: what: 2.000001 <= 2");
        assert_eq!(exact(2f64.powi(-24)), "5.960464477539063e-8");
        assert_eq!([exact(0.0), exact(1.05)], ["0", "1.05"]);
    }

    #[test]
    fn nothing_checked_is_no_pass() {
        assert_eq!(Judged::new(Vec::new(), Vec::new()).verdict, Verdict::Fail);
        let holds = Check::at_most("n", &threshold(2.0), "w", 1.0);
        let fails = Check::at_most("n", &threshold(2.0), "w", 3.0);
        assert_eq!(
            Judged::new(vec![holds.clone()], Vec::new()).verdict,
            Verdict::Pass
        );
        let both = Judged::new(vec![holds, fails], vec!["look".into()]);
        assert_eq!(both.verdict, Verdict::Fail);
        assert_eq!(both.lines()[2], "note: look");
    }
}
