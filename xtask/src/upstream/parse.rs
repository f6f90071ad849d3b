//! Reads what upstream's test programs print.

use crate::report::Counts;

/// The text without terminal colours.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("\x1b[") {
        out.push_str(&rest[..start]);
        let code = &rest[start + 2..];
        rest = code
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or("", |end| &code[end + 1..]);
    }
    out.push_str(rest);
    out
}

/// test-llama-archs: one row per architecture, kind and device; `SKIP` in a row is a skip, `FAIL` a failure.
pub fn archs(text: &str) -> Counts {
    archs_of(text, "")
}

/// The same of the devices whose names start like this.
pub fn archs_of(text: &str, name: &str) -> Counts {
    let mut counts = Counts::default();
    for row in plain(text).lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, device, _, nmse, roundtrip] = cells[..] else {
            continue;
        };
        // The device `Meta` splits tensors over several devices; without a second one its rows are empty by design.
        match (device, nmse, roundtrip) {
            ("Device" | "Meta", ..) => {}
            _ if !device.starts_with(name) => {}
            _ if device.starts_with('-') => {}
            (_, a, b) if a.contains("FAIL") || b.contains("FAIL") => counts.failed += 1,
            (_, a, _) if a.starts_with("OK") => counts.passed += 1,
            _ => counts.skipped += 1,
        }
    }
    counts
}

/// What test-llama-archs says itself: the number of tests it executed, and how many failed.
pub fn archs_summary(text: &str) -> Option<(u64, u64)> {
    let text = plain(text);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Summary: "))?;
    if let Some(all) = line
        .strip_prefix("all ")
        .and_then(|rest| rest.strip_suffix(" test(s) passed"))
    {
        return Some((all.parse().ok()?, 0));
    }
    let (executed, rest) = line.split_once(" test(s) executed, ")?;
    Some((
        executed.parse().ok()?,
        rest.strip_suffix(" failed")?.parse().ok()?,
    ))
}

/// test-backend-ops: `559/561 tests passed` per backend, and a line per case that a backend does not support.
pub fn backend_ops(text: &str) -> Counts {
    let text = plain(text);
    let mut counts = Counts::default();
    for line in text.lines().map(str::trim) {
        if let Some((passed, all)) = line
            .strip_suffix(" tests passed")
            .and_then(|line| line.split_once('/'))
            && let (Ok(passed), Ok(all)) = (passed.parse::<u64>(), all.parse::<u64>())
        {
            counts += Counts::new(passed, all.saturating_sub(passed), 0);
        } else if line.contains("): not supported") {
            counts.skipped += 1;
        }
    }
    counts
}

/// test-alloc: `test_name PASSED` per test.
pub fn alloc(text: &str) -> Counts {
    Counts::new(
        text.lines()
            .filter(|line| line.ends_with(" PASSED"))
            .count() as u64,
        0,
        0,
    )
}

/// test-save-load-state with one model: `PASS` after each `=== Test n` but the first, whose result the others are compared
/// with; that one passed if all did.
pub fn save_load(text: &str) -> Counts {
    let text = plain(text);
    let lines = |word: &str| text.lines().filter(|line| line.trim() == word).count() as u64;
    let started = text
        .lines()
        .filter(|line| line.starts_with("=== Test "))
        .count() as u64;
    let skipped = lines("SKIP");
    let passed = if lines("All tests passed.") == 1 {
        started.saturating_sub(skipped)
    } else {
        lines("PASS")
    };
    Counts::new(passed, started.saturating_sub(passed + skipped), skipped)
}

/// test-save-load-state with a folder of models: `summary: 128 passed, 0 failed (of 128)`.
pub fn save_load_models(text: &str) -> Counts {
    let text = plain(text);
    let read = |line: &str| {
        let (passed, rest) = line.rsplit_once("summary: ")?.1.split_once(" passed, ")?;
        Some(Counts::new(
            passed.parse().ok()?,
            rest.split_once(" failed")?.0.parse().ok()?,
            0,
        ))
    };
    text.lines().find_map(read).unwrap_or_default()
}

/// Our own programs: a last line "N passed, N failed", or with ", N skipped" behind it.
pub fn closing(text: &str) -> Counts {
    let numbers = |line: &str| {
        let (line, skipped) = match line.trim().strip_suffix(" skipped") {
            Some(line) => line.rsplit_once(", ")?,
            None => (line.trim(), "0"),
        };
        let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
        Some(Counts::new(
            passed.parse().ok()?,
            failed.parse().ok()?,
            skipped.parse().ok()?,
        ))
    };
    text.lines().rev().find_map(numbers).unwrap_or_default()
}

/// test-state-restore-fragmented is one test, and says `SUCCESS`.
pub fn restore_fragmented(text: &str) -> Counts {
    let passed = text.contains("SUCCESS - state restore works");
    Counts::new(u64::from(passed), u64::from(!passed), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_our_programs_is_read() {
        assert_eq!(
            closing("| a | equal |\n\n12 passed, 3 failed\n"),
            Counts::new(12, 3, 0)
        );
        assert_eq!(
            closing("SKIP: why\n0 passed, 0 failed, 1 skipped\n"),
            Counts::new(0, 0, 1)
        );
        assert_eq!(closing("nothing"), Counts::default());
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(plain("a\x1b[1;32mOK\x1b[0m b"), "aOK b");
        assert_eq!(plain("cut\x1b["), "cut");
    }

    #[test]
    fn rows_of_architectures_are_counted_and_the_meta_device_is_not() {
        let text = "|     Model arch.|  Device|Config|   NMSE vs. CPU|Roundtrip|\n\
            |----------------|--------|------|---------------|---------|\n\
            |            clip|AMD EPYC| Dense|\x1b[1;33mSKIP\x1b[0m           |     \x1b[1;33mSKIP\x1b[0m|\n\
            |            clip|    Meta| Dense|\x1b[1;33mSKIP\x1b[0m           |     \x1b[1;33mSKIP\x1b[0m|\n\
            |           llama|AMD EPYC| Dense|\x1b[1;32mOK\x1b[0m (0.00e+00)|     \x1b[1;32mOK\x1b[0m|\n\
            |           llama|AMD EPYC|   MoE|\x1b[1;31mFAIL\x1b[0m (1.0e+00)|     \x1b[1;32mOK\x1b[0m|\n\
            Summary: 2 test(s) executed, 1 failed\n";
        assert_eq!(archs(text), Counts::new(1, 1, 1));
        assert_eq!(archs_summary(text), Some((2, 1)));
        assert_eq!(
            archs_summary("Summary: all 133 test(s) passed\n"),
            Some((133, 0))
        );
        assert_eq!(archs_summary("Summary: no tests executed\n"), None);
    }

    #[test]
    fn unsupported_ops_are_skips() {
        let text = "  CPY(type_src=f32): \x1b[1;32mOK\x1b[0m\n  CPY(type_src=q1_0): not supported [CPU]\n  3/4 tests passed\n1/1 backends passed\n";
        assert_eq!(backend_ops(text), Counts::new(3, 1, 1));
        assert_eq!(
            backend_ops("Backend 1/1: CPU\n  Skipping CPU backend\n1/1 backends passed\n"),
            Counts::default()
        );
    }

    #[test]
    fn the_first_state_test_passed_if_all_did() {
        let text = "=== Test 1: baseline ===\n1 2 3\n\n=== Test 2: b ===\n\nPASS\n";
        assert_eq!(
            save_load(&format!("{text}\nAll tests passed.\n")),
            Counts::new(2, 0, 0)
        );
        assert_eq!(save_load(text), Counts::new(1, 1, 0));
    }

    #[test]
    fn a_test_that_started_and_did_not_pass_has_failed() {
        assert_eq!(
            save_load("=== Test 1: a ===\n\nPASS\n\n=== Test 2: b ===\nerror\n"),
            Counts::new(1, 1, 0)
        );
        assert_eq!(
            save_load_models("main: summary: 127 passed, 1 failed (of 128)\n"),
            Counts::new(127, 1, 0)
        );
        assert_eq!(
            save_load_models("main: no .gguf models found\n"),
            Counts::default()
        );
        assert_eq!(alloc("test_a PASSED\ntest_b "), Counts::new(1, 0, 0));
        assert_eq!(restore_fragmented("main : FAIL"), Counts::new(0, 1, 0));
    }
}
