//! `rolling-kv gate budget`.

use std::path::PathBuf;

use clap::Args;
use rolling_kv::{ModelParams, TailEngine};
use rolling_kv_gates::ruler::Task;
use rolling_kv_gates::{
    Budget, BudgetReport, ExactLever, ExactReport, LocalLever, LocalReport, LocalTrial,
    SplitResult, Spot, noise_text,
};
use serde_json::Value;

use super::args::{Kept, Subject};
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, read_text, row, with_bars};
use super::parse as gate_parse;
use crate::device::{self, SimSpec};
use crate::line::Asked;
use crate::run::{self, parse};
use crate::source::Source;
use crate::ui;

const MIB: f64 = 1_048_576.0;
/// Words of the built-in essay.
const ESSAY_WORDS: usize = 20_000;

/// The options of `rolling-kv gate budget`.
///
/// The exact lever places cells. The lossy one makes layers local: they see the first and the newest tokens only, and what a set of
/// layers loses is measured before it is accepted. With --json, --kv-local-file of llama.cpp's programs and LocalLayers::from_file take
/// the file.
#[derive(Args)]
pub struct BudgetArgs {
    #[command(flatten)]
    pub subject: Subject,

    #[command(flatten)]
    pub kept: Kept,

    /// The simulated device, such as sim:mem=2GiB,link=6.4GB/s; unless it says otherwise its time is reckoned
    #[arg(long, value_name = "sim:SPEC", default_value = "sim:link=6.4GB/s", value_parser = SimSpec::parse)]
    pub device: SimSpec,

    /// Tokens of context, for the exact lever; a text fills all but the decoded ones
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Device memory for the KV cache
    ///
    /// [default: half of what the whole cache takes]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub vram: Option<u64>,

    /// Tokens decoded with each split; the first two do not count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub decoded: u32,

    /// Cells that are brought to the device in one copy
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse::tile)]
    pub copy_cells: u32,

    /// Only place cells, and try no local layers
    #[arg(long)]
    pub exact_only: bool,

    /// Newest tokens that a local layer sees
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = parse::tokens)]
    pub local_cells: u32,

    /// Tokens at the beginning that a local layer sees
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub local_first: u32,

    /// Tokens of a question about local layers, exactly
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse::tokens)]
    pub length: u32,

    /// RULER's tasks to ask, with commas between them; see `gate niah --help`
    #[arg(long, value_name = "LIST", default_value = "niah_single_1", value_delimiter = ',', value_parser = gate_parse::task)]
    pub tasks: Vec<Task>,

    /// Where the needle stands: percent of the text, or window, tail, border, newest
    #[arg(long, value_name = "LIST", default_value = "0,25,50,75", value_delimiter = ',', value_parser = gate_parse::spot)]
    pub depths: Vec<Spot>,

    /// Cells of the other layers in the window, in percent of the context, while local layers are tried
    #[arg(long, value_name = "P", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=95))]
    pub window_percent: u32,

    /// CPU threads
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the texts and of the questions
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Essay to hide needles in, instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

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
        engine: TailEngine::Stream.name(),
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
