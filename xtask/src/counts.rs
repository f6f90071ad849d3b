//! Reads the closing lines of test runners.

use crate::report::Counts;

/// Sums the closing lines of cargo's test runner, and takes a test that printed `SKIP:` as skipped, not as passed.
#[derive(Debug, Default)]
pub struct CargoTests {
    counts: Counts,
    closing_lines: u64,
    in_successes: bool,
    skipping: bool,
    skips: u64,
}

/// What to do with one line of cargo's test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Worth a reader's time.
    Yes,
    /// The output of a test that passed.
    No,
}

impl CargoTests {
    /// Takes the next line of a run with `--show-output`.
    pub fn line(&mut self, line: &str) -> Show {
        if let Some(counts) = cargo_closing_line(line) {
            self.counts += counts;
            self.closing_lines += 1;
            self.in_successes = false;
            return Show::Yes;
        }
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        if !self.in_successes {
            return Show::Yes;
        }
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.skipping = false;
        }
        if line.trim_start().starts_with("SKIP:") {
            self.skips += u64::from(!self.skipping);
            self.skipping = true;
            return Show::Yes;
        }
        Show::No
    }

    /// The counts, once all lines were taken; `None` if no runner closed or nothing ran at all.
    pub fn finish(&self) -> Option<Counts> {
        let Counts {
            passed,
            failed,
            skipped,
        } = self.counts;
        let counts = Counts::new(
            passed.saturating_sub(self.skips),
            failed,
            skipped + self.skips,
        );
        (self.closing_lines > 0 && counts != Counts::default()).then_some(counts)
    }
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`
pub fn cargo_closing_line(line: &str) -> Option<Counts> {
    let line = line.trim().strip_prefix("test result: ")?;
    let field = |name: &str| {
        let before = line
            .split([';', '.'])
            .find_map(|part| part.trim().strip_suffix(name))?;
        before.trim().parse().ok()
    };
    Some(Counts::new(
        field("passed")?,
        field("failed")?,
        field("ignored")?,
    ))
}

/// `3 failed, 21 passed, 2 skipped, 4 deselected in 12.34s`, with or without its frame of `=`.
pub fn pytest_closing_line(line: &str) -> Option<Counts> {
    let line = line.trim_matches(['=', ' ']);
    let (head, _) = line.rsplit_once(" in ")?;
    let mut counts = Counts::default();
    let mut known = false;
    for part in head.split(", ") {
        let (number, name) = part.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        known = true;
        match name {
            "passed" | "xpassed" => counts.passed += number,
            "failed" | "error" | "errors" => counts.failed += number,
            "skipped" | "xfailed" => counts.skipped += number,
            _ => {}
        }
    }
    known.then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_closing_line_is_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 5 filtered out; finished in 3.01s";
        assert_eq!(cargo_closing_line(line), Some(Counts::new(12, 2, 1)));
        assert_eq!(cargo_closing_line("test some::name ... ok"), None);
        assert_eq!(cargo_closing_line("test result: ok. many passed"), None);
    }

    #[test]
    fn closing_lines_of_several_binaries_are_summed() {
        let mut tests = CargoTests::default();
        for line in [
            "running 2 tests",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s",
        ] {
            tests.line(line);
            tests.line(line);
        }
        assert_eq!(tests.finish(), Some(Counts::new(4, 0, 0)));
    }

    #[test]
    fn a_test_that_says_skip_is_not_counted_as_passed() {
        let mut tests = CargoTests::default();
        let lines = [
            ("test a ... ok", Show::Yes),
            ("successes:", Show::No),
            ("---- a stdout ----", Show::No),
            ("loading", Show::No),
            ("SKIP: no model", Show::Yes),
            ("SKIP: no model, said twice", Show::Yes),
            ("---- b stdout ----", Show::No),
            ("fine", Show::No),
            ("successes:", Show::No),
            ("    a", Show::No),
            (
                "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s",
                Show::Yes,
            ),
        ];
        for (line, show) in lines {
            assert_eq!(tests.line(line), show, "{line}");
        }
        assert_eq!(tests.finish(), Some(Counts::new(1, 0, 1)));
    }

    #[test]
    fn the_output_of_failing_tests_is_shown() {
        let mut tests = CargoTests::default();
        tests.line("successes:");
        assert_eq!(tests.line("    quiet"), Show::No);
        assert_eq!(tests.line("failures:"), Show::Yes);
        assert_eq!(tests.line("assertion failed"), Show::Yes);
    }

    #[test]
    fn no_closing_line_or_no_test_at_all_is_not_a_pass() {
        let mut tests = CargoTests::default();
        tests.line("error: could not compile");
        assert_eq!(tests.finish(), None);
        tests.line("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.0s");
        assert_eq!(tests.finish(), None);
    }

    #[test]
    fn pytests_closing_line_is_read() {
        let line = "===== 1 failed, 40 passed, 3 skipped, 90 deselected, 2 warnings, 1 error in 61.20s (0:01:01) =====";
        assert_eq!(pytest_closing_line(line), Some(Counts::new(40, 2, 3)));
        assert_eq!(
            pytest_closing_line("8 passed in 1.02s"),
            Some(Counts::new(8, 0, 0))
        );
        assert_eq!(pytest_closing_line("unit/test_basic.py ...."), None);
        assert_eq!(pytest_closing_line("waiting, then in 5 s"), None);
    }
}
