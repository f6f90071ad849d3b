//! `rolling-kv gate niah`.

use std::fs;

use rolling_kv::ModelParams;
use rolling_kv_gates::{Inject, Niah, NiahReport, Store, noise_text};
use serde_json::{Value, json};

use super::args::{InjectArg, NiahArgs};
use super::error::GateCommandError;
use super::files::{check_folder, close, read_text, with_bars, write_json};
use crate::source::Source;
use crate::{device, run, ui};

/// Words of the built-in essay.
const ESSAY_WORDS: usize = 20_000;

pub fn run(args: &NiahArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    for file in args
        .subject
        .json
        .iter()
        .chain(&args.html)
        .chain(&args.results)
    {
        check_folder(file)?;
    }
    let essay = match &args.text {
        Some(file) => read_text(file)?,
        None => noise_text(args.seed, ESSAY_WORDS),
    };
    let gate = Niah {
        tasks: args.tasks.clone(),
        lengths: args.lengths.clone(),
        spots: args.depths.clone(),
        window_percent: args.window_percent,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        essay,
        inject: args.inject.map(|fault| match fault {
            InjectArg::Flip => Inject::Flip,
            InjectArg::Drop => Inject::Drop,
            InjectArg::Stale => Inject::Stale,
        }),
    };
    if gate.inject == Some(Inject::Flip) {
        return Err(GateCommandError::NoFlip);
    }
    let options = options(&source, args, &gate);
    ui::print(&format!("gate niah: {options}"));

    let mut store = match &args.results {
        Some(file) => Store::open(file, &options)?,
        None => Store::default(),
    };
    if !store.is_empty() {
        ui::print(&format!("{} answers were there already", store.len()));
    }
    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| gate.run(&model, &mut store, progress))?;
    print(&report);
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        write_json(file, &object(&source, args, &report, &options))?;
    }
    if let Some(file) = &args.html {
        fs::write(file, report.html(&options)).map_err(|source| GateCommandError::Html {
            path: file.into(),
            source,
        })?;
    }
    Ok(code)
}

/// Everything that the answers depend on.
fn options(model: &Source, args: &NiahArgs, gate: &Niah) -> Value {
    json!({
        "version": 1,
        "model": model.to_string(),
        "device": args.device.as_ref().map_or("CPU", |device| &device.0),
        "tasks": gate.tasks.iter().map(|task| task.name()).collect::<Vec<_>>(),
        "lengths": gate.lengths,
        "depths": gate.spots.iter().map(|spot| spot.name()).collect::<Vec<_>>(),
        "window_percent": gate.window_percent,
        "threads": gate.threads,
        "seed": gate.seed,
        "text": args.text.as_ref().map(|file| file.display().to_string()),
        "inject": gate.inject,
    })
}

fn object(model: &Source, args: &NiahArgs, report: &NiahReport, options: &Value) -> Value {
    json!({
        "gate": "niah",
        "verdict": report.verdict,
        "model": model.to_string(),
        "n_ctx": args.lengths.iter().max(),
        "window_cells": report.asked.iter().map(|one| one.window_cells).max(),
        "engine": "stream",
        "backend": options["device"],
        "seed": args.seed,
        "options": options,
        "metrics": report,
        "thresholds": report.reasons,
    })
}

fn print(report: &NiahReport) {
    for score in &report.scores {
        let (lengths, spots) = report.grid(&score.task);
        ui::print(&format!(
            "\n{}: mean score {:.2} resident, {:.2} spilled (score resident/spilled, = where every logit is equal)",
            score.task, score.resident, score.spilled
        ));
        let head: String = spots.iter().map(|spot| format!("{spot:>13}")).collect();
        ui::print(&format!("{:>8}{head}", "tokens"));
        for length in lengths {
            let cells: String = spots
                .iter()
                .map(|spot| {
                    report
                        .at(&score.task, length, spot)
                        .map_or(format!("{:>13}", "-"), |one| {
                            format!(
                                "  {:.2}/{:.2} {}",
                                one.resident.score,
                                one.spilled.score,
                                if one.equal() { "=" } else { "!" }
                            )
                        })
                })
                .collect();
            ui::print(&format!("{length:>8}{cells}"));
        }
    }
    ui::print("");
}
