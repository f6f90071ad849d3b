//! `rolling-kv gate budget`.

use rolling_kv::ModelParams;
use rolling_kv_gates::{
    Budget, BudgetReport, ExactLever, ExactReport, LocalLever, LocalLimits, LocalReport, noise_text,
};
use serde_json::{Value, json};

use super::args::BudgetArgs;
use super::error::GateCommandError;
use super::files::{check_folder, close, read_text, with_bars, write_json, write_plot};
use crate::device::{self, SimSpec};
use crate::source::Source;
use crate::{run, ui};

const MIB: f64 = 1_048_576.0;
/// Words of the built-in essay.
const ESSAY_WORDS: usize = 20_000;

pub fn run(args: &BudgetArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    for file in args.subject.json.iter().chain(&args.plot) {
        check_folder(file)?;
    }
    let device = args.device.for_timing();
    let gate = Budget {
        exact: exact(args)?,
        local: if args.exact_only {
            None
        } else {
            Some(local(args)?)
        },
        prediction_error: 0.15,
        chosen_slower: 0.05,
    };
    ui::print(&format!(
        "gate budget: model {source}, simulated device {}, ctx {}, {} MiB, questions of {} tokens, local layers of {} and {} tokens, seed {}",
        device.0,
        args.ctx,
        args.vram.map_or("half".to_owned(), |mib| mib.to_string()),
        args.length,
        args.local_first,
        args.local_cells,
        args.seed,
    ));
    let backend = device::start(Some(&device))?;
    let model = source.load(&backend, &ModelParams::default())?;
    let cpu = source.load(&backend, &ModelParams::default().devices(&[]))?;
    let report = with_bars(|progress| gate.run(&model, &cpu, progress))?;
    print_exact(&report.exact);
    if let Some(local) = &report.local {
        print_local(local);
    }
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        write_json(file, &object(&source, args, &device, &report))?;
    }
    if let Some(file) = &args.plot {
        write_plot(file, report.svg())?;
    }
    Ok(code)
}

fn exact(args: &BudgetArgs) -> Result<ExactLever, GateCommandError> {
    Ok(ExactLever {
        n_ctx: args.ctx,
        decoded: args.decoded,
        copy_cells: args.copy_cells,
        link_bytes_per_s: args
            .device
            .link_bytes_per_s()
            .ok_or(GateCommandError::Link)?,
        link_latency_s: args.device.latency_s().ok_or(GateCommandError::Latency)?,
        budget_bytes: args.vram.map(|mib| mib << 20),
        seed: args.seed,
    })
}

fn local(args: &BudgetArgs) -> Result<LocalLever, GateCommandError> {
    Ok(LocalLever {
        cells: args.local_cells,
        first: args.local_first,
        length: args.length,
        tasks: args.tasks.clone(),
        spots: args.depths.clone(),
        window_percent: args.window_percent,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        essay: match &args.text {
            Some(file) => read_text(file)?,
            None => noise_text(args.seed, ESSAY_WORDS),
        },
        limits: LocalLimits {
            score_least: 0.5,
            score_lost: 0.0,
            nats_lost: 0.5,
            kld_mean: 0.02,
        },
    })
}

fn print_exact(report: &ExactReport) {
    ui::print(&format!(
        "\nExact: {:.1} of {:.1} MiB of KV cache on the device; a step takes {:.2} ms with all of it there\n",
        report.budget_bytes as f64 / MIB,
        report.cache_bytes as f64 / MIB,
        report.compute_ms
    ));
    ui::print(&format!(
        "{:>16} {:>18} {:>11} {:>9} {:>12} {:>12} {:>9} {:>6}",
        "resident layers",
        "window of others",
        "device MiB",
        "tail MiB",
        "reckoned ms",
        "measured ms",
        "error",
        "bits"
    ));
    for (at, result) in report.splits.iter().enumerate() {
        ui::print(&format!(
            "{:>16} {:>18} {:>11.1} {:>9.1} {:>12.2} {:>12.2} {:>8.1}% {:>6}{}",
            result.split.resident_layers,
            result.split.window_cells,
            result.device_bytes as f64 / MIB,
            result.tail_bytes / MIB,
            result.predicted_ms,
            result.measured_ms,
            100.0 * (result.predicted_ms / result.measured_ms - 1.0),
            if result.bits_equal { "equal" } else { "differ" },
            if at == report.chosen {
                "  <- chosen"
            } else {
                ""
            }
        ));
    }
}

fn print_local(report: &LocalReport) {
    let order: Vec<String> = report
        .order
        .iter()
        .map(|one| format!("{} ({:.3})", one.layer, one.reach))
        .collect();
    ui::print(&format!(
        "\nLossy: local layers change what the model says. The most local layer first (farthest head's share beyond): {}\n",
        order.join(", ")
    ));
    ui::print(&format!(
        "{:>7} {:>13} {:>10} {:>10} {:>10} {:>21}",
        "layers", "score", "lost", "nats lost", "KLD mean", "MiB, local of whole"
    ));
    for trial in &report.trials {
        let verdict = if trial.rejected.is_empty() {
            "accepted".to_owned()
        } else {
            format!("rejected: {}", trial.rejected.join("; "))
        };
        ui::print(&format!(
            "{:>7} {:>6.2}/{:<6.2} {:>10.2} {:>10.3} {:>10.4} {:>11.1} of {:<6.1} {verdict}",
            trial.layers.len(),
            trial.score_local,
            trial.score_whole,
            trial.score_lost,
            trial.nats_lost,
            trial.kld_mean,
            trial.local_bytes as f64 / MIB,
            trial.whole_bytes as f64 / MIB,
        ));
    }
    match &report.accepted {
        Some(found) => ui::print(&format!(
            "\naccepted as local, of {} tokens: layers {}\n",
            found.cells(),
            found
                .layers()
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(",")
        )),
        None => ui::print("\nno layer is accepted as local\n"),
    }
}

fn object(source: &Source, args: &BudgetArgs, device: &SimSpec, report: &BudgetReport) -> Value {
    json!({
        "gate": "budget",
        "verdict": report.verdict,
        "model": source.to_string(),
        "n_ctx": args.ctx,
        "window_cells": report.exact.splits[report.exact.chosen].split.window_cells,
        "engine": "stream",
        "backend": format!("sim:{}", device.0),
        "seed": args.seed,
        "metrics": report,
        "thresholds": report.reasons,
        "accepted": report.local.as_ref().and_then(|local| local.accepted.as_ref()),
    })
}
