//! The logit-equivalence gate through the program, on a long text, and its control arms.

use std::path::PathBuf;
use std::time::Duration;

use crate::cargo;
use crate::error::{Error, Result};
use crate::model;
use crate::place::Place;
use crate::process::{Ended, Run, in_words};
use crate::report::Counts;

/// Tokens of context, and cells of them in the window.
const CONTEXT: &str = "6144";
const WINDOW: &str = "1024";

/// What must turn the gate red.
const FAULTS: [&str; 3] = ["flip", "drop", "stale"];

/// The longest that one gate may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(90 * 60);

/// The gate passes.
pub fn clean(place: &Place) -> Result<Counts> {
    gate(place)?.run(None)?;
    Ok(Counts::ONE)
}

/// The gate fails with each fault.
pub fn faults(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    for fault in FAULTS {
        gate.run(Some(fault))?;
    }
    Ok(Counts::new(FAULTS.len() as u64, 0, 0))
}

struct Gate {
    program: PathBuf,
    model: PathBuf,
}

fn gate(place: &Place) -> Result<Gate> {
    Ok(Gate {
        program: cargo::program(place)?,
        model: model::fetch(place)?,
    })
}

impl Gate {
    fn run(&self, fault: Option<&str>) -> Result<()> {
        let run = Run::new(&self.program)
            .args(["gate", "logit-equiv", "--ctx", CONTEXT])
            .args(["--window-cells", WINDOW, "-m"])
            .arg(&self.model)
            .args(fault.iter().flat_map(|fault| ["--inject", fault]))
            .limit(LIMIT);
        judge(&run.shown()?, fault)
    }
}

/// Without a fault the gate passes; with one it fails, and says so. That it could not run is neither.
fn judge(ended: &Ended, fault: Option<&str>) -> Result<()> {
    let (code, word) = match fault {
        None => (0, "PASS"),
        Some(_) => (1, "FAIL"),
    };
    let last = ended.text.lines().last().unwrap_or_default();
    if ended.status.code() == Some(code) && last == word {
        return Ok(());
    }
    Err(Error::wrong(
        format!(
            "the gate with {} ended with {} and {last:?}, where {word} is expected",
            fault.map_or("no fault".to_owned(), |fault| format!(
                "the fault {fault:?}"
            )),
            in_words(ended.status)
        ),
        "read the table above",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> Ended {
        Run::new("sh").args(["-c", script]).quietly().unwrap()
    }

    #[test]
    fn a_pass_is_no_failure_and_a_failure_no_pass() {
        let pass = ended("echo PASS");
        let fail = ended("echo FAIL; exit 1");
        assert!(judge(&pass, None).is_ok() && judge(&fail, Some("flip")).is_ok());
        assert!(judge(&fail, None).is_err() && judge(&pass, Some("flip")).is_err());
    }

    #[test]
    fn a_gate_that_could_not_run_is_neither() {
        for script in [
            "echo FAIL; exit 2",
            "exit 1",
            "exit 0",
            "echo FAIL; kill -9 $$",
        ] {
            assert!(judge(&ended(script), None).is_err(), "{script}");
            assert!(judge(&ended(script), Some("drop")).is_err(), "{script}");
        }
    }
}
