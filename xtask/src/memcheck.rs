//! The API tests under valgrind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::cargo;
use crate::counts::cargo_closing_line;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::report::{Counts, Outcome};

/// The exit code that says that valgrind found an error.
const FOUND: &str = "97";

/// The longest that one test binary may take.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Tests on tiny models that take valgrind three seconds and more, most of the time of all: each makes dozens of contexts.
const SLOW: [&str; 22] = [
    "context::every_pair_of_cache_types_works_with_flash_attention",
    "decode::oversubscribed_sequences_fail_one_by_one_and_free_what_they_took",
    "load::impossible_hyperparameters_never_end_the_process",
    "sequences::a_part_of_a_sequence_is_not_copied_between_buffers",
    "sequences::a_state_has_no_parts_to_remove_or_copy",
    "sequences::a_whole_sequence_is_always_released",
    "shifts::a_shift_gives_what_a_fresh_run_at_the_new_positions_gives",
    "shifts::a_sliding_window_can_be_shifted_again_and_again",
    "shifts::can_shift_is_true_exactly_where_a_shift_works",
    "shifts::regression_a_quantised_k_of_small_heads_does_not_shift",
    "shifts::two_shifts_before_a_batch_add_up",
    "state::a_context_comes_back_as_it_was",
    "state::a_sequence_comes_back_as_another_one",
    "state::a_small_state_after_a_large_one_leaves_nothing_of_it",
    "state::files_come_back_as_they_were",
    "state_refusals::a_half_that_does_not_fit_puts_the_other_half_back",
    "state_refusals::a_state_of_another_layout_is_refused_by_name",
    "state_refusals::a_state_of_another_model_is_refused",
    "state_refusals::a_state_of_the_other_kind_is_refused",
    "state_refusals::a_state_that_does_not_fit_leaves_what_was_there",
    "state_refusals::files_that_cannot_be_read_leave_what_was_there",
    "user_models::a_described_model_with_impossible_numbers_never_ends_the_process",
];

/// Which tests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those on tiny models, without the slow ones.
    Short,
    /// Every test of the library.
    All,
}

/// Runs the library's tests under valgrind.
pub fn run(place: &Place, extent: Extent) -> Result<Outcome> {
    if Run::new("valgrind").arg("--version").quietly().is_err() {
        return Ok(Outcome::Skipped(
            "valgrind is not installed (Debian: apt install valgrind)".into(),
        ));
    }
    let mut counts = Counts::default();
    let (names, left_out): (&[&str], &[&str]) = match extent {
        Extent::Short => (&["api_tiny"], &SLOW),
        Extent::All => (&[], &[]),
    };
    for program in test_programs(place, names)? {
        counts += one(place, &program, left_out)?;
    }
    Ok(Outcome::Ran(counts))
}

/// One test binary, its tests shared among as many valgrinds as there are cores: each runs one thread at a time.
fn one(place: &Place, program: &Path, left_out: &[&str]) -> Result<Counts> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tests = without(tests_of(program)?, left_out)?;
    let shares = shares(&tests, cores);
    let counts: Vec<Result<Counts>> = std::thread::scope(|scope| {
        let running: Vec<_> = shares
            .iter()
            .map(|tests| scope.spawn(|| share(place, program, tests)))
            .collect();
        running
            .into_iter()
            .map(|share| share.join().expect("a share does not panic"))
            .collect()
    });
    let mut sum = Counts::default();
    for count in counts {
        sum += count?;
    }
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    println!("{name}: {} passed in {} shares", sum.passed, shares.len());
    if sum.passed > 0 {
        Ok(sum)
    } else {
        Err(Error::wrong(
            format!("{} ran no test", program.display()),
            "name another test",
        ))
    }
}

fn share(place: &Place, program: &Path, tests: &[String]) -> Result<Counts> {
    let ended = Run::new("valgrind")
        .args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .args(["--num-callers=40", "--fair-sched=yes"])
        .arg(format!("--error-exitcode={FOUND}"))
        .arg(format!("--suppressions={}", place.root.join("xtask/valgrind.supp").display()))
        .arg(program)
        .args(["--test-threads=1", "--show-output", "--exact"])
        .args(tests)
        .dir(&place.root)
        .env("ROLLING_KV_TEST_SLOW_MACHINE", "valgrind")
        .limit(LIMIT)
        .next("the report above names the place; run valgrind on that program yourself to look closer")
        .quietly()?
        .success()?;
    Ok(ended
        .text
        .lines()
        .find_map(cargo_closing_line)
        .unwrap_or_default())
}

/// The names of a test program's tests.
fn tests_of(program: &Path) -> Result<Vec<String>> {
    let listed = Run::new(program).arg("--list").quietly()?.success()?.stdout;
    Ok(String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// The tests that are not left out; each name of those must be a test's.
fn without(mut tests: Vec<String>, left_out: &[&str]) -> Result<Vec<String>> {
    for name in left_out {
        let at = tests.iter().position(|test| test == name).ok_or_else(|| {
            Error::wrong(
                format!("there is no test called {name}"),
                "correct the list of slow tests in xtask/src/memcheck.rs",
            )
        })?;
        tests.remove(at);
    }
    Ok(tests)
}

/// Deals the tests out in turns. No share is empty.
fn shares(tests: &[String], count: usize) -> Vec<Vec<String>> {
    let mut shares = vec![Vec::new(); count.clamp(1, tests.len().max(1))];
    let n = shares.len();
    for (at, test) in tests.iter().enumerate() {
        shares[at % n].push(test.clone());
    }
    shares.retain(|share| !share.is_empty());
    shares
}

/// Builds the tests and answers where their programs lie.
fn test_programs(place: &Place, names: &[&str]) -> Result<Vec<PathBuf>> {
    let which: Vec<&str> = match names {
        [] => vec!["--lib", "--tests"],
        names => names.iter().flat_map(|&name| ["--test", name]).collect(),
    };
    let run = cargo::command(place).args([
        "test",
        "--package",
        "rolling-kv",
        "--no-run",
        "--message-format=json",
    ]);
    let messages = run.args(which).quietly()?.success()?.stdout;
    let programs: Vec<PathBuf> = String::from_utf8_lossy(&messages)
        .lines()
        .filter_map(executable)
        .collect();
    if programs.is_empty() {
        return Err(Error::wrong(
            "cargo built no test program",
            "check the names of the tests in tests/",
        ));
    }
    Ok(programs)
}

fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    message["profile"]["test"].as_bool().filter(|&test| test)?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_dealt_out_whole() {
        let tests: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let dealt = shares(&tests, 2);
        assert_eq!(dealt, [vec!["a", "c", "e"], vec!["b", "d"]]);
        assert_eq!(shares(&tests, 9).len(), 5);
        assert!(shares(&[], 2).is_empty());
    }

    #[test]
    fn what_is_left_out_must_be_a_test() {
        let tests = || ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(without(tests(), &["b"]).unwrap(), ["a", "c"]);
        let error = without(tests(), &["d"]).unwrap_err();
        assert!(error.to_string().contains("called d"));
    }

    #[test]
    fn only_test_programs_are_taken_from_cargos_messages() {
        let line = |test: bool, exe: &str| {
            format!(r#"{{"profile":{{"test":{test}}},"executable":{exe}}}"#)
        };
        assert_eq!(
            executable(&line(true, "\"/t/a\"")),
            Some(PathBuf::from("/t/a"))
        );
        assert_eq!(executable(&line(false, "\"/t/a\"")), None);
        assert_eq!(executable(&line(true, "null")), None);
        assert_eq!(executable("{}"), None);
    }
}
