//! The gates of the program on the small real model, at lengths that take minutes, and their control arms.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cargo;
use crate::error::{Error, Result};
use crate::model;
use crate::place::Place;
use crate::process::{Ended, Run, in_words};
use crate::report::Counts;

/// Logits over a long text, in windows of half, a quarter and a tenth of it.
const LOGITS: &[&str] = &["run", "gates/specs/logit-equiv.toml"];

/// Keys that move.
const KEYS: &[&str] = &["run", "gates/specs/shift.toml"];

/// Needles at some lengths and places.
const NEEDLES: &[&str] = &["run", "gates/specs/niah.toml"];

/// Needles at all lengths and depths that the model can read.
const ALL_NEEDLES: &[&str] = &["run", "gates/specs/niah-all.toml"];

/// Time of a step over the length of the tail.
const TAILS: &[&str] = &["run", "gates/specs/cliff.toml"];

/// Time of a step by who attends to the tail, and the same over a longer text.
const ENGINES: &[&str] = &["run", "gates/specs/engines.toml"];
const ALL_ENGINES: &[&str] = &["run", "gates/specs/engines-all.toml"];

/// Both levers on a budget of device memory.
const BUDGET: &[&str] = &["run", "gates/specs/budget.toml"];

/// Predicted against measured steps, engine by engine.
const PLANS: &[&str] = &["run", "gates/specs/plan.toml"];

/// Architectures that are made in memory: every way to keep K and V.
const TINY: &[&str] = &[
    "logit-equiv",
    "--ctx",
    "512",
    "--window-cells",
    "128",
    "--tile-cells",
    "32",
];
const ARCHITECTURES: [&str; 7] = [
    "llama",
    "gemma2",
    "gemma4",
    "qwen2vl",
    "deepseek2",
    "jamba",
    "byte-pairs",
];

/// The same with a part of the tail's tiles brought to a device, over so slow a link that the host attends to the others.
const ON_A_DEVICE: &[&str] = &[
    "--device",
    "sim:mem=256MiB,link=50MB/s",
    "--tail-engine",
    "hybrid",
];

/// The small real model with a quantised cache.
const QUANTISED: &[&str] = &[
    "--cache-type",
    "q8_0",
    "--ctx",
    "2048",
    "--window-cells",
    "512",
];

/// And with a tail alone of that type.
const MIXED: &[&str] = &[
    "--tail-type",
    "q8_0",
    "--ctx",
    "2048",
    "--window-cells",
    "512",
];

/// Each gate's spec with what makes it quick, for a fault.
const ONE_WINDOW: &[&str] = &["--window-cells", "1024"];
const NEAR: &[&str] = &["--most", "300"];
const ONE_NEEDLE: &[&str] = &["--lengths", "512", "--depths", "0"];
const SHORT_TAILS: &[&str] = &[
    "--device",
    "sim:link=2GB/s",
    "--ctx",
    "1280",
    "--points",
    "4",
    "--copy-cells",
    "256",
];

const SHORT_PLANS: &[&str] = &["--ctx", "1280", "--points", "2", "--engines", "stream"];

/// A tail of which the host has a part, behind one link.
const ONE_TAIL: &[&str] = &[
    "--ctx",
    "1024",
    "--links",
    "1.6GB/s",
    "--tail-percent",
    "100",
];

/// What must turn the gate of the engines red.
const ENGINE_FAULTS: [&str; 3] = ["host-early", "host-unwaited", "half-rates"];

/// A ring of one slot cannot run ahead.
const NO_RING: &[&str] = &["--ring-depth", "1"];

/// What must turn the gate red.
const FAULTS: [&str; 3] = ["flip", "drop", "stale"];

/// The longest that one gate may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(90 * 60);

/// The logit gate passes.
pub fn logits(place: &Place) -> Result<Counts> {
    gate(place)?.run(LOGITS, None)?;
    Ok(Counts::ONE)
}

/// The logit gate fails with each fault.
pub fn logits_faults(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    for fault in FAULTS {
        gate.run(&[LOGITS, ONE_WINDOW].concat(), Some(fault))?;
    }
    Ok(Counts::new(FAULTS.len() as u64, 0, 0))
}

/// The gate of moved keys passes, and fails with its fault.
pub fn keys(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    gate.run(KEYS, None)?;
    gate.run(&[KEYS, NEAR].concat(), Some("misplace"))?;
    Ok(Counts::new(2, 0, 0))
}

/// The needle gate passes, and fails with a stale tile.
pub fn needles(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    gate.run(NEEDLES, None)?;
    gate.run(&[NEEDLES, ONE_NEEDLE].concat(), Some("stale"))?;
    Ok(Counts::new(2, 0, 0))
}

/// The needle gate passes at every length and depth.
pub fn all_needles(place: &Place) -> Result<Counts> {
    gate(place)?.run(ALL_NEEDLES, None)?;
    Ok(Counts::ONE)
}

/// The gate of the tail's cost passes, and fails where nothing can run ahead.
pub fn tails(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    gate.run(TAILS, None)?;
    let starved = [TAILS, SHORT_TAILS, NO_RING].concat();
    let ended = gate.command(&starved, None).shown()?;
    judge(&ended, Some("a ring of one slot"))?;
    Ok(Counts::new(2, 0, 0))
}

/// Every engine takes what theory says behind every link, and each of its faults is noticed.
pub fn engines(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    gate.run(ENGINES, None)?;
    for fault in ENGINE_FAULTS {
        gate.run(&[ENGINES, ONE_TAIL].concat(), Some(fault))?;
    }
    Ok(Counts::new(1 + ENGINE_FAULTS.len() as u64, 0, 0))
}

/// The same over a longer text and with more tails.
pub fn all_engines(place: &Place) -> Result<Counts> {
    gate(place)?.run(ALL_ENGINES, None)?;
    Ok(Counts::ONE)
}

/// A budget of device memory is spent as it was reckoned, and layers that see less are told from those that cannot.
pub fn budget(place: &Place) -> Result<Counts> {
    gate(place)?.run(BUDGET, None)?;
    Ok(Counts::ONE)
}

/// Plans predict what steps take, and those from rates of half the speed do not.
pub fn plans(place: &Place) -> Result<Counts> {
    let gate = gate(place)?;
    gate.run(PLANS, None)?;
    gate.run(&[PLANS, SHORT_PLANS].concat(), Some("halved"))?;
    Ok(Counts::new(2, 0, 0))
}

/// The logit gate passes on a quantised cache, and on architectures that are made in memory.
pub fn kinds(place: &Place) -> Result<Counts> {
    let mut gate = gate(place)?;
    gate.run(&[LOGITS, QUANTISED].concat(), None)?;
    gate.run(&[LOGITS, MIXED].concat(), None)?;
    gate.run(&[LOGITS, MIXED].concat(), Some("drop"))?;
    for name in ARCHITECTURES {
        gate.model = format!("tiny:{name}").into();
        gate.run(TINY, None)?;
        gate.run(&[TINY, ON_A_DEVICE].concat(), None)?;
    }
    Ok(Counts::new(3 + 2 * ARCHITECTURES.len() as u64, 0, 0))
}

/// Our program, and the model that its gates run on.
pub struct Gate {
    /// Where the specs lie.
    root: PathBuf,
    program: PathBuf,
    model: PathBuf,
}

/// Builds the program and fetches the model.
pub fn gate(place: &Place) -> Result<Gate> {
    Ok(Gate {
        root: place.root.clone(),
        program: cargo::program(place)?,
        model: model::fetch(place)?,
    })
}

impl Gate {
    /// The same program on another model.
    pub fn on(&self, model: &str) -> Self {
        Self {
            root: self.root.clone(),
            program: self.program.clone(),
            model: model.into(),
        }
    }

    /// Runs a gate, which must write its page into `file`.
    pub fn run_with_page(&self, options: &[&str], fault: Option<&str>, file: &Path) -> Result<()> {
        judge(
            &self
                .command(options, fault)
                .arg("--html")
                .arg(file)
                .shown()?,
            fault,
        )
    }

    fn run(&self, options: &[&str], fault: Option<&str>) -> Result<()> {
        judge(&self.command(options, fault).shown()?, fault)
    }

    fn command(&self, options: &[&str], fault: Option<&str>) -> Run {
        Run::new(&self.program)
            .dir(&self.root)
            .arg("gate")
            .args(options)
            .arg("-m")
            .arg(&self.model)
            .args(fault.iter().flat_map(|fault| ["--inject", fault]))
            .limit(LIMIT)
    }
}

/// How a gate begins the line of a check that does not hold.
const FAILED: &str = "FAILED: ";

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
    // The table above is cut where only the end of a long log is kept.
    let failed = ended.text.lines().filter(|line| line.starts_with(FAILED));
    let failed: String = failed.map(|line| format!("; {line}")).collect();
    Err(Error::wrong(
        format!(
            "the gate with {} ended with {} and {last:?}, where {word} is expected{failed}",
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

    #[test]
    fn every_spec_that_is_run_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for words in [
            LOGITS,
            KEYS,
            NEEDLES,
            ALL_NEEDLES,
            TAILS,
            ENGINES,
            ALL_ENGINES,
        ] {
            assert!(root.join(words[1]).is_file(), "{words:?}");
        }
    }

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
    fn what_did_not_hold_is_named() {
        let fail = ended("echo 'ok: one'; echo 'FAILED: two: 3 <= 2'; echo FAIL; exit 1");
        let said = judge(&fail, None).unwrap_err().to_string();
        assert!(said.contains("; FAILED: two: 3 <= 2"), "{said}");
        assert!(!said.contains("one"), "{said}");
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
