//! What every gate does beside its measuring: it says what it was asked, keeps what it finds, and writes what it found.

use std::fs;
use std::path::{Path, PathBuf};

use rolling_kv::Model;
use rolling_kv_gates::{GateError, Judged, Settings, Store, Verdict, digest_of_text};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::Subject;
use super::error::GateCommandError;
use crate::device::SimSpec;
use crate::line::Asked;
use crate::source::Source;
use crate::{exit, ui};

/// Steps of the bar of one run.
const STEPS: u64 = 100;

/// Options that say where something is written; what is measured does not depend on them.
const FILES: [&str; 4] = ["json", "html", "results", "plot"];

/// The form of what is kept.
const VERSION: u32 = 2;

/// One run of a gate, or of a command like one.
pub struct Harness<'a> {
    name: String,
    subject: &'a Subject,
    plot: Option<&'a Path>,
    model: String,
    settings: Settings,
}

impl<'a> Harness<'a> {
    /// A gate. Nothing is done yet; what cannot be written later is said now.
    pub fn gate(
        name: &str,
        subject: &'a Subject,
        plot: Option<&'a Path>,
        source: &Source,
        asked: &Asked,
    ) -> Result<Self, GateCommandError> {
        let thresholds = asked.threshold_list(name)?.into_iter().collect();
        let (title, spec) = (format!("gate {name}"), asked.spec_file().map(str::to_owned));
        let settings = Settings::new(title, spec, asked.options().to_vec(), thresholds);
        Self::new(name, subject, plot, source, settings)
    }

    /// A command that judges nothing.
    pub fn command(
        name: &str,
        subject: &'a Subject,
        plot: Option<&'a Path>,
        source: &Source,
        asked: &Asked,
    ) -> Result<Self, GateCommandError> {
        let settings = Settings::new(name.into(), None, asked.options().to_vec(), Vec::new());
        Self::new(name, subject, plot, source, settings)
    }

    fn new(
        name: &str,
        subject: &'a Subject,
        plot: Option<&'a Path>,
        source: &Source,
        settings: Settings,
    ) -> Result<Self, GateCommandError> {
        for (option, file) in [
            ("json", subject.json.as_deref()),
            ("html", subject.html.as_deref()),
            ("plot", plot),
        ] {
            file.map_or(Ok(()), |file| check_folder(option, file))?;
        }
        let harness = Self {
            name: name.into(),
            subject,
            plot,
            model: source.to_string(),
            settings,
        };
        let model = harness.model.clone();
        Ok(harness.with("model", model))
    }

    /// The same with what an option came to.
    #[must_use]
    pub fn with(mut self, option: &str, value: String) -> Self {
        let known = self.settings.options.iter_mut();
        for (_, old) in known.filter(|(name, _)| name == option) {
            old.clone_from(&value);
        }
        self
    }

    /// Prints the seed, every option and every threshold.
    pub fn announce(&self) {
        ui::print(&self.settings.to_string());
    }

    /// Where results are kept, if they are. `text` is what the file of `--text` holds.
    pub fn store(
        &self,
        folder: Option<&PathBuf>,
        model: &Model,
        text: Option<&str>,
    ) -> Result<Store, GateCommandError> {
        let Some(folder) = folder else {
            return Ok(Store::default());
        };
        let mut options = self.options();
        options.retain(|name, _| !FILES.contains(&name.as_str()) && name != "model");
        if let Some(text) = text {
            options.insert("text".into(), digest_of_text(text).into());
        }
        let fingerprint = model.fingerprint();
        let fingerprint: String = fingerprint.iter().map(|b| format!("{b:02x}")).collect();
        let all = json!({
            "version": VERSION,
            "gate": self.name,
            "model": fingerprint,
            "options": options,
        });
        let store = Store::open(folder, &all)?;
        if store.names().len() > 0 {
            let names: Vec<&str> = store.names().collect();
            ui::print(&format!(
                "{} results were there already: {}",
                names.len(),
                names.join("; ")
            ));
        }
        if !store.damaged().is_empty() {
            let damaged = store.damaged().join("; ");
            ui::print(&format!("damaged or gone, so made again: {damaged}"));
        }
        Ok(store)
    }

    fn options(&self) -> Map<String, Value> {
        let options = self.settings.options.iter();
        options
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect()
    }

    /// Prints the thresholds and the verdict, and writes what was asked for; answers the exit code.
    pub fn close(&self, found: Found<'_>) -> Result<u8, GateCommandError> {
        for line in found.judged.lines() {
            ui::print(&line);
        }
        let (word, code) = match found.judged.verdict {
            Verdict::Pass => ("PASS", exit::OK),
            Verdict::Fail => ("FAIL", exit::FAILURE),
        };
        ui::print(word);
        self.json(|| self.object(&found))?;
        self.page(found.page)?;
        self.picture(found.picture)?;
        Ok(code)
    }

    /// Writes the JSON object, if it was asked for.
    pub fn json(&self, object: impl FnOnce() -> Value) -> Result<(), GateCommandError> {
        let Some(file) = &self.subject.json else {
            return Ok(());
        };
        write("json", file, &format!("{:#}\n", object()))
    }

    /// Writes the page, if it was asked for.
    pub fn page(&self, page: &dyn Fn(&Settings) -> Drawn) -> Result<(), GateCommandError> {
        let Some(file) = &self.subject.html else {
            return Ok(());
        };
        let page = page(&self.settings).map_err(GateCommandError::Draw)?;
        write("html", file, &page)
    }

    /// Writes the picture, if it was asked for.
    pub fn picture(&self, picture: &dyn Fn() -> Drawn) -> Result<(), GateCommandError> {
        let Some(file) = self.plot else {
            return Ok(());
        };
        write("plot", file, &picture().map_err(GateCommandError::Draw)?)
    }

    fn object(&self, found: &Found<'_>) -> Value {
        json!({
            "gate": self.name,
            "verdict": found.judged.verdict,
            "model": self.model,
            "spec": self.settings.spec,
            "options": self.options(),
            "n_ctx": found.n_ctx,
            "window_cells": found.window_cells,
            "engine": if found.device.is_some() { found.engine } else { "in place" },
            "backend": found.device.map_or("cpu".to_owned(), |device| format!("sim:{}", device.0)),
            "seed": found.seed,
            "inject": found.inject,
            "metrics": found.metrics,
            "thresholds": self.thresholds(found.judged),
            "notes": found.judged.notes,
            "accepted": found.accepted,
        })
    }

    /// What was judged, and the thresholds that only took part in that.
    fn thresholds(&self, judged: &Judged) -> Vec<Value> {
        let checks = judged.checks.iter().map(|check| json!(check));
        let alone = self.settings.thresholds.iter().filter(|(name, _)| {
            let judged = judged.checks.iter().any(|check| check.name == *name);
            !judged
        });
        let alone = alone.map(|(name, threshold)| {
            json!({
                "name": name,
                "value": threshold.value,
                "why": threshold.why,
                "found": Value::Null,
                "holds": Value::Null,
            })
        });
        checks.chain(alone).collect()
    }
}

/// A page or a picture, or why it could not be drawn.
pub type Drawn = Result<String, String>;

/// What a gate found, for everything that is written of it.
pub struct Found<'a> {
    pub judged: &'a Judged,
    pub n_ctx: u32,
    pub window_cells: Vec<u32>,
    pub device: Option<&'a SimSpec>,
    /// Who attends to the tail, where there is a device.
    pub engine: &'a str,
    pub seed: u64,
    pub inject: Value,
    pub metrics: Value,
    pub page: &'a dyn Fn(&Settings) -> Drawn,
    pub picture: &'a dyn Fn() -> Drawn,
    /// What the gate accepted, for programs that are given the file.
    pub accepted: Option<Value>,
}

/// What a gate found as JSON. Numbers and texts always are, so that nothing is lost in the fallback.
pub fn metrics(report: &impl Serialize) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}

/// A folder that is not there is noticed before the work and not after it.
fn check_folder(option: &'static str, file: &Path) -> Result<(), GateCommandError> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let listed = fs::read_dir(folder).map(drop);
    listed.map_err(|source| GateCommandError::Output {
        option,
        path: file.into(),
        source,
    })
}

fn write(option: &'static str, file: &Path, text: &str) -> Result<(), GateCommandError> {
    fs::write(file, text).map_err(|source| GateCommandError::Output {
        option,
        path: file.into(),
        source,
    })
}

/// Runs a gate with a bar for each of its parts.
pub fn with_bars<T>(
    gate: impl FnOnce(&mut dyn FnMut(&'static str, f64)) -> Result<T, GateError>,
) -> Result<T, GateError> {
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
    report
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

/// A row of a table: each cell at the right of its column.
pub fn row(width: usize, cells: &[impl AsRef<str>]) -> String {
    let cells = cells
        .iter()
        .map(|cell| format!("{:>width$}", cell.as_ref()));
    cells.collect::<Vec<_>>().join(" ")
}
