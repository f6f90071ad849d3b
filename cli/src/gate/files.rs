//! What every gate does beside its measuring: bars, files that it reads and writes, and its last lines.

use std::fs;
use std::path::Path;

use rolling_kv_gates::{GateError, Verdict};
use serde_json::Value;

use super::error::GateCommandError;
use crate::{exit, ui};

/// Steps of the bar of one run.
const STEPS: u64 = 100;

/// A folder that is not there is noticed before the work and not after it.
pub fn check_folder(file: &Path) -> Result<(), GateCommandError> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let listed = fs::read_dir(folder).map(drop);
    listed.map_err(|source| GateCommandError::Json {
        path: file.into(),
        source,
    })
}

/// Runs a gate with a bar for each of its parts.
pub fn with_bars<T>(
    gate: impl FnOnce(&mut dyn FnMut(&'static str, f64)) -> Result<T, GateError>,
) -> Result<T, GateCommandError> {
    let mut current: Option<(&str, indicatif::ProgressBar)> = None;
    let report = gate(&mut |name, share| {
        if current.as_ref().is_none_or(|(shown, _)| *shown != name) {
            if let Some((_, bar)) = current.take() {
                bar.finish_and_clear();
            }
            current = Some((name, ui::share_bar(name, STEPS)));
        }
        if let Some((_, bar)) = &current {
            bar.set_position((share * STEPS as f64) as u64);
        }
    });
    if let Some((_, bar)) = current {
        bar.finish_and_clear();
    }
    Ok(report?)
}

/// A text that a gate is given. An empty one is none.
pub fn read_text(path: &Path) -> Result<String, GateCommandError> {
    let text = fs::read_to_string(path).map_err(|source| GateCommandError::Text {
        path: path.into(),
        source,
    })?;
    if text.trim().is_empty() {
        return Err(GateCommandError::EmptyText { path: path.into() });
    }
    Ok(text)
}

/// Writes one JSON object.
pub fn write_json(file: &Path, object: &Value) -> Result<(), GateCommandError> {
    fs::write(file, format!("{object:#}\n")).map_err(|source| GateCommandError::Json {
        path: file.into(),
        source,
    })
}

/// Writes a picture.
pub fn write_plot(file: &Path, svg: Result<String, String>) -> Result<(), GateCommandError> {
    let svg = svg.map_err(GateCommandError::Draw)?;
    fs::write(file, svg).map_err(|source| GateCommandError::Plot {
        path: file.into(),
        source,
    })
}

/// Prints the thresholds and the verdict; answers the exit code.
pub fn close(verdict: Verdict, reasons: &[String]) -> u8 {
    for reason in reasons {
        ui::print(reason);
    }
    match verdict {
        Verdict::Pass => {
            ui::print("PASS");
            exit::OK
        }
        Verdict::Fail => {
            ui::print("FAIL");
            exit::FAILURE
        }
    }
}
