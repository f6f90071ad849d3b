//! `rolling-kv gate logit-equiv`.

use rolling_kv::{KvType, ModelParams};
use rolling_kv_gates::{Comparison, Inject, LogitEquiv, LogitEquivReport};
use serde_json::{Value, json};

use super::args::{InjectArg, LogitEquivArgs};
use super::error::GateCommandError;
use super::files::{check_folder, close, read_text, with_bars, write_json};
use crate::source::Source;
use crate::{device, run, ui};

pub fn run(args: &LogitEquivArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    if let Some(file) = &args.subject.json {
        check_folder(file)?;
    }
    let gate = LogitEquiv {
        n_ctx: args.ctx,
        windows: windows(args),
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
        "gate logit-equiv: model {}, seed {}, ctx {}, windows {:?}, KV {}, {} threads, inject {}",
        source,
        gate.seed,
        gate.n_ctx,
        gate.windows,
        gate.kv_type,
        gate.threads,
        gate.inject
            .map_or("nothing".to_owned(), |fault| format!("{fault:?}")
                .to_lowercase()),
    ));

    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| gate.run(&model, progress))?;
    print(&report);
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        write_json(file, &object(&source, args, &gate, &report))?;
    }
    Ok(code)
}

/// Cells, given as such or in percent of the context, rounded down to whole tiles but not to none.
fn windows(args: &LogitEquivArgs) -> Vec<u32> {
    const TILE: u32 = 128;
    let tile = args.tile_cells.unwrap_or(TILE);
    if args.window_percent.is_empty() {
        return args.window_cells.clone();
    }
    let cells = |percent: &u32| {
        let cells = u64::from(args.ctx) * u64::from(*percent) / 100;
        (cells as u32 / tile * tile).max(tile)
    };
    args.window_percent.iter().map(cells).collect()
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
        "{} prompt tokens, {} decoded\n",
        report.prompt_tokens, report.decoded_tokens
    ));
    for run in &report.spilled {
        ui::print(&run.residency);
    }
    ui::print(&format!(
        "\n{:<34} {:>9} {:>6} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "",
        "positions",
        "bits",
        "max |dlogit|",
        "NMSE",
        "KLD mean",
        "KLD p99",
        "KLD max",
        "top-1",
        "top-5"
    ));
    ui::print(&row("stock against stock", &report.stock_vs_stock));
    ui::print(&row("resident against stock", &report.resident_vs_stock));
    for run in &report.spilled {
        let window = run.window_cells;
        ui::print(&row(
            &format!("window {window} against stock"),
            &run.vs_stock,
        ));
        ui::print(&row(
            &format!("window {window} against resident"),
            &run.vs_resident,
        ));
    }
    ui::print("");
}

fn row(name: &str, found: &Comparison) -> String {
    format!(
        "{name:<34} {:>9} {:>6} {:>12.3e} {:>10.3e} {:>10.3e} {:>10.3e} {:>10.3e} {:>7.2}% {:>7.2}%",
        found.positions,
        if found.bits_equal { "equal" } else { "differ" },
        found.max_abs,
        found.nmse,
        found.kld_mean,
        found.kld_p99,
        found.kld_max,
        100.0 * found.top1,
        100.0 * found.top5
    )
}

fn object(
    model: &Source,
    args: &LogitEquivArgs,
    gate: &LogitEquiv,
    report: &LogitEquivReport,
) -> Value {
    json!({
        "gate": "logit-equiv",
        "verdict": report.verdict,
        "model": model.to_string(),
        "n_ctx": gate.n_ctx,
        "window_cells": report.spilled.iter().map(|run| run.window_cells).collect::<Vec<_>>(),
        "engine": if args.device.is_some() { "stream" } else { "in place" },
        "backend": args.device.as_ref().map_or("cpu".to_owned(), |device| format!("sim:{}", device.0)),
        "seed": gate.seed,
        "inject": gate.inject,
        "metrics": report,
        "thresholds": report.reasons,
    })
}
