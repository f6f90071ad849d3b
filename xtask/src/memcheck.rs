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

/// Runs the test binaries called `names` (all of the library's, if none is named) under valgrind.
pub fn run(place: &Place, names: &[&str]) -> Result<Outcome> {
    if Run::new("valgrind").arg("--version").quietly().is_err() {
        return Ok(Outcome::Skipped(
            "valgrind is not installed (Debian: apt install valgrind)".into(),
        ));
    }
    let mut counts = Counts::default();
    for program in test_programs(place, names)? {
        counts += one(place, &program)?;
    }
    Ok(Outcome::Ran(counts))
}

/// One test binary, its tests shared among as many valgrinds as there are cores: each runs one thread at a time.
fn one(place: &Place, program: &Path) -> Result<Counts> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shares = shares(&tests_of(program)?, cores);
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
