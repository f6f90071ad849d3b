//! `gates/gpu.sh`, the script for a machine with a card, on the simulated device: every command line of it is executed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::cuda::bundle::{self, Contents};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::report::Counts;

/// The longest that a dry run may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Steps that need a card or its tools, and are skipped without.
const OF_A_CARD: [&str; 2] = ["nvidia-smi", "sanitizer"];

/// Quick steps for the control arm, and the one that gets an option that it does not know.
const QUICK: &str = "doctor,ops-rkv,engine-stream";
const SPOILED: &str = "engine-stream";

/// A dry run passes, and one with a fault is seen to fail.
pub fn run(place: &Place) -> Result<Counts> {
    let dir = place.work().join("gpu");
    bundle::fill(place, &dir, &Contents::for_dry_run())?;
    let ended = script(&dir, &[])?.success()?;
    let report = report(&dir)?;
    let steps = steps(&ended, &report)?;
    for (name, result) in &steps {
        let may_skip = OF_A_CARD.contains(&name.as_str());
        if result != "PASS" && !(may_skip && result == "SKIP") {
            return Err(wrong(&format!("its step {name} says {result}")));
        }
    }
    let known = script(&dir, &["--list"])?.success()?;
    let known: Vec<&str> = known.text.lines().collect();
    let ran: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    if known != ran {
        return Err(wrong(&format!("it ran {ran:?} of {known:?}")));
    }
    results(&report)?;
    fault(&dir)?;
    Ok(Counts::new(steps.len() as u64 + 1, 0, 0))
}

/// A step with an option that does not exist fails in the table, in the report and in the exit code, and the others pass.
fn fault(dir: &Path) -> Result<()> {
    let ended = script(dir, &["--only", QUICK, "--inject", SPOILED])?;
    if ended.status.code() != Some(1) {
        return Err(wrong("a step that failed did not make its exit code 1"));
    }
    for (name, result) in steps(&ended, &report(dir)?)? {
        let wanted = if name == SPOILED { "FAIL" } else { "PASS" };
        if result != wanted {
            return Err(wrong(&format!(
                "with {SPOILED} spoiled, {name} says {result}"
            )));
        }
    }
    Ok(())
}

fn script(dir: &Path, options: &[&str]) -> Result<Ended> {
    Run::new("bash")
        .arg(dir.join("gpu.sh"))
        .args(["--dry-run", "--out"])
        .arg(dir.join("report"))
        .args(options)
        .env_remove("LD_LIBRARY_PATH")
        .dir("/")
        .limit(LIMIT)
        .next(NEXT)
        .shown()
}

const NEXT: &str = "read the logs in rolling-kv/gpu/report in the target folder; each begins with its command line";

fn wrong(what: &str) -> Error {
    Error::wrong(format!("gates/gpu.sh: {what}"), NEXT)
}

fn report(dir: &Path) -> Result<Value> {
    let file = dir.join("report/report.json");
    let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
    serde_json::from_str(&text).map_err(|error| wrong(&format!("its report is no JSON: {error}")))
}

/// Each step with its result, as the report and the table say alike.
fn steps(ended: &Ended, report: &Value) -> Result<Vec<(String, String)>> {
    let steps = report["steps"]
        .as_array()
        .ok_or_else(|| wrong("its report has no steps"))?;
    let table = String::from_utf8_lossy(&ended.stdout);
    let mut found = Vec::new();
    for step in steps {
        let word = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
        let (name, result) = (word("step"), word("result"));
        let is_row = |line: &str| {
            line.split_whitespace()
                .take(2)
                .eq([name.as_str(), result.as_str()])
        };
        if !table.lines().any(is_row) {
            return Err(wrong(&format!(
                "its table does not say that {name} is {result}"
            )));
        }
        if result == "SKIP" && word("note").is_empty() {
            return Err(wrong(&format!("it does not say why {name} was skipped")));
        }
        found.push((name, result));
    }
    Ok(found)
}

/// What must stand in the report beside the verdicts.
fn results(report: &Value) -> Result<()> {
    let of = |name: &str| {
        let steps = report["steps"].as_array();
        let mut steps = steps.into_iter().flatten();
        steps
            .find(|step| step["step"] == name)
            .map_or(&Value::Null, |step| &step["found"])
    };
    let wanted = [
        ("doctor", of("doctor")["verdict"].is_string()),
        ("link", of("link").is_object()),
        ("logits-f16", of("logits-f16").is_object()),
        ("logits-q8_0", of("logits-q8_0").is_object()),
        ("logits-host", of("logits-host").is_object()),
        ("niah", of("niah").is_object()),
        (
            "cliff",
            of("cliff").as_array().is_some_and(|rows| rows.len() == 3),
        ),
        ("engine-hybrid", of("engine-hybrid")["timings"].is_object()),
        (
            "graphs-off",
            of("graphs-off")
                .as_array()
                .is_some_and(|rows| rows.len() == 2),
        ),
    ];
    match wanted.iter().find(|(_, is_there)| !is_there) {
        Some((name, _)) => Err(wrong(&format!("its report lacks what {name} found"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(table: &str, report: &str) -> Result<Vec<(String, String)>> {
        let ended = Run::new("printf").args(["%s", table]).quietly().unwrap();
        steps(&ended, &serde_json::from_str(report).unwrap())
    }

    #[test]
    fn table_and_report_must_agree_and_a_skip_must_have_a_reason() {
        let step = |result: &str, note: &str| {
            format!(r#"{{"steps":[{{"step":"link","result":"{result}","note":"{note}"}}]}}"#)
        };
        let row = "link PASS 3\n";
        assert_eq!(
            said(row, &step("PASS", "")).unwrap(),
            [("link".into(), "PASS".into())]
        );
        assert!(said(row, &step("FAIL", "")).is_err());
        assert!(said("link SKIP 0 no card\n", &step("SKIP", "no card")).is_ok());
        assert!(said("link SKIP 0\n", &step("SKIP", "")).is_err());
    }

    #[test]
    fn a_report_without_what_was_found_is_refused() {
        let error = results(&serde_json::json!({ "steps": [] })).unwrap_err();
        assert!(error.to_string().contains("doctor"));
    }
}
