//! `rolling-kv gate logit-equiv`.

use std::path::Path;

use rolling_kv::{KvType, Model, ModelParams};
use rolling_kv_gates::{Comparison, Inject, LogitEquiv, LogitEquivReport};
use serde_json::{Value, json};

use super::args::{InjectArg, LogitEquivArgs};
use super::error::GateCommandError;
use super::files::{check_folder, close, read_text, with_bars, write_json};
use crate::{device, models, run, ui};

pub fn run(args: &LogitEquivArgs) -> Result<u8, GateCommandError> {
    let path = models::resolve(&args.subject.model)?;
    if let Some(file) = &args.subject.json {
        check_folder(file)?;
    }
    let gate = LogitEquiv {
        n_ctx: args.ctx,
        window_cells: args.window_cells,
        tile_cells: args.tile_cells,
        kv_type: kv_type(&args.cache_type),
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        text: args.text.as_deref().map(read_text).transpose()?,
        inject: args.inject.map(|fault| match fault {
            InjectArg::Flip => Inject::Flip,
            InjectArg::Drop => Inject::Drop,
            InjectArg::Stale => Inject::Stale,
        }),
    };
    ui::print(&format!(
        "gate logit-equiv: model {}, seed {}, ctx {}, window {}, KV {}, {} threads, inject {}",
        path.display(),
        gate.seed,
        gate.n_ctx,
        gate.window_cells,
        gate.kv_type,
        gate.threads,
        gate.inject
            .map_or("nothing".to_owned(), |fault| format!("{fault:?}")
                .to_lowercase()),
    ));

    let backend = device::start(args.device.as_ref())?;
    let model = Model::load(&backend, &path, &ModelParams::default())?;
    let report = with_bars(|progress| gate.run(&model, progress))?;
    print(&report);
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        write_json(file, &object(&path, args, &gate, &report))?;
    }
    Ok(code)
}

/// The command line allows only names of types, so that the fallback is never taken.
fn kv_type(name: &str) -> KvType {
    KvType::ALL
        .into_iter()
        .find(|kv| kv.to_string() == name)
        .unwrap_or_default()
}

fn print(report: &LogitEquivReport) {
    ui::print(&format!(
        "{} prompt tokens, {} decoded; {}\n",
        report.prompt_tokens, report.decoded_tokens, report.residency
    ));
    ui::print(&format!(
        "{:<24} {:>9} {:>6} {:>12} {:>11} {:>11} {:>11} {:>8}",
        "", "positions", "bits", "max |dlogit|", "NMSE", "KLD mean", "KLD max", "top-1"
    ));
    for (name, found) in [
        ("stock against stock", &report.stock_vs_stock),
        ("resident against stock", &report.resident_vs_stock),
        ("spilled against stock", &report.spilled_vs_stock),
        ("spilled against resident", &report.spilled_vs_resident),
    ] {
        ui::print(&row(name, found));
    }
    ui::print("");
}

fn row(name: &str, found: &Comparison) -> String {
    format!(
        "{name:<24} {:>9} {:>6} {:>12.3e} {:>11.3e} {:>11.3e} {:>11.3e} {:>7.2}%",
        found.positions,
        if found.bits_equal { "equal" } else { "differ" },
        found.max_abs,
        found.nmse,
        found.kld_mean,
        found.kld_max,
        100.0 * found.top1
    )
}

fn object(
    model: &Path,
    args: &LogitEquivArgs,
    gate: &LogitEquiv,
    report: &LogitEquivReport,
) -> Value {
    json!({
        "gate": "logit-equiv",
        "verdict": report.verdict,
        "model": model.display().to_string(),
        "n_ctx": gate.n_ctx,
        "window_cells": report.window_cells,
        "engine": if args.device.is_some() { "stream" } else { "in place" },
        "backend": args.device.as_ref().map_or("cpu".to_owned(), |device| format!("sim:{}", device.0)),
        "seed": gate.seed,
        "inject": gate.inject,
        "metrics": report,
        "thresholds": report.reasons,
    })
}
