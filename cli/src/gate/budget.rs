//! `rolling-kv gate budget`.

use rolling_kv::ModelParams;
use rolling_kv_gates::{
    Budget, BudgetReport, ExactLever, ExactReport, LocalLever, LocalReport, LocalTrial,
    SplitResult, noise_text,
};
use serde_json::Value;

use super::args::BudgetArgs;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, read_text, row, with_bars};
use crate::line::Asked;
use crate::source::Source;
use crate::{device, run, ui};

const MIB: f64 = 1_048_576.0;
/// Words of the built-in essay.
const ESSAY_WORDS: usize = 20_000;

pub fn run(args: &BudgetArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let device = args.device.for_timing();
    let text = args.text.as_deref().map(read_text).transpose()?;
    let gate = Budget {
        exact: exact(args)?,
        local: (!args.exact_only).then(|| local(args, text.as_deref())),
        thresholds: asked.thresholds()?,
    };
    let harness = Harness::gate(
        "budget",
        &args.subject,
        args.plot.as_deref(),
        &source,
        asked,
    )?
    .with("device", format!("sim:{}", device.0));
    harness.announce();

    let backend = device::start(Some(&device))?;
    let model = source.load(&backend, &ModelParams::default())?;
    let cpu = source.load(&backend, &ModelParams::default().devices(&[]))?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, text.as_deref())?;
    let report = with_bars(|progress| gate.run(&model, &cpu, &mut store, progress))?;
    print_exact(&report.exact);
    if let Some(local) = &report.local {
        print_local(local);
    }
    harness.close(Found {
        judged: &report.judged,
        n_ctx: args.ctx,
        window_cells: windows(&report),
        device: Some(&device),
        seed: args.seed,
        inject: Value::Null,
        metrics: metrics(&report),
        page: &|settings| report.html(settings),
        picture: &|| report.svg(),
        accepted: report.local.as_ref().and_then(|local| {
            let accepted = local.accepted.as_ref()?;
            serde_json::to_value(accepted).ok()
        }),
    })
}

fn windows(report: &BudgetReport) -> Vec<u32> {
    let splits = report.exact.splits.iter();
    splits.map(|split| split.split.window_cells).collect()
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

fn local(args: &BudgetArgs, text: Option<&str>) -> LocalLever {
    LocalLever {
        cells: args.local_cells,
        first: args.local_first,
        length: args.length,
        tasks: args.tasks.clone(),
        spots: args.depths.clone(),
        window_percent: args.window_percent,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        essay: text.map_or_else(|| noise_text(args.seed, ESSAY_WORDS), str::to_owned),
    }
}

fn print_exact(report: &ExactReport) {
    ui::print(&format!(
        "\nExact: {:.1} of {:.1} MiB of KV cache on the device; a step takes {:.2} ms with all of it there\n",
        report.budget_bytes as f64 / MIB,
        report.cache_bytes as f64 / MIB,
        report.compute_ms
    ));
    ui::print(&row(16, &SplitResult::HEAD));
    for (at, result) in report.splits.iter().enumerate() {
        let chosen = if at == report.chosen { "  chosen" } else { "" };
        ui::print(&format!("{}{chosen}", row(16, &result.cells())));
    }
}

fn print_local(report: &LocalReport) {
    let order: Vec<String> = report
        .order
        .iter()
        .map(|one| format!("{} ({:.3})", one.layer, one.reach))
        .collect();
    ui::print(&format!(
        "\nLossy: local layers change what the model says. The most local layer first, with the share that the farthest of its heads has beyond:\n{}\n",
        order.join(", ")
    ));
    ui::print(&row(10, &LocalTrial::HEAD));
    for trial in &report.trials {
        ui::print(&format!("{}  {}", row(10, &trial.cells()), trial.verdict()));
    }
    ui::print(&format!("\n{}\n", report.accepted_in_words()));
}
