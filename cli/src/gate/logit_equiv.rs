//! `rolling-kv gate logit-equiv`.

use rolling_kv::{ModelParams, TailEngine};
use rolling_kv_gates::{Comparison, LogitEquiv, LogitEquivReport};
use serde_json::json;

use super::args::LogitEquivArgs;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, read_text, row, with_bars};
use crate::line::Asked;
use crate::source::Source;
use crate::{device, run, ui};

pub fn run(args: &LogitEquivArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let gate = LogitEquiv {
        n_ctx: args.ctx,
        windows: windows(args),
        tile_cells: args.tile_cells,
        kv_type: run::kv_type(&args.cache_type),
        tail_type: args.tail_type.as_deref().map(run::kv_type),
        engine: TailEngine::from(args.tail_engine),
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        text: args.text.as_deref().map(read_text).transpose()?,
        inject: args.inject.map(Into::into),
        thresholds: asked.thresholds()?,
    };
    let plot = args.plot.as_deref();
    let harness = Harness::gate("logit-equiv", &args.subject, plot, &source, asked)?;
    harness.announce();

    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, gate.text.as_deref())?;
    let report = with_bars(|progress| gate.run(&model, &mut store, progress))?;
    print(&report);
    harness.close(Found {
        judged: &report.judged,
        n_ctx: gate.n_ctx,
        window_cells: report.spilled.iter().map(|run| run.window_cells).collect(),
        device: args.device.as_ref(),
        engine: report.engine,
        seed: gate.seed,
        inject: json!(gate.inject),
        metrics: metrics(&report),
        page: &|settings| report.html(settings, &gate.thresholds),
        picture: &|| report.svg(&gate.thresholds),
        accepted: None,
    })
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

fn print(report: &LogitEquivReport) {
    ui::print(&format!(
        "{} prompt tokens, {} decoded; each next token surprises stock by {:.2} nats, a guess by {:.2}\n",
        report.prompt_tokens, report.decoded_tokens, report.surprise_nats, report.guess_nats
    ));
    for run in &report.spilled {
        ui::print(&run.residency);
    }
    let line = |name: &str, cells: &[String]| format!("{name:<34} {}", row(12, cells));
    ui::print(&format!(
        "\n{}",
        line("", &Comparison::HEAD.map(String::from))
    ));
    for (name, found) in report.rows() {
        ui::print(&line(&name, &found.cells()));
    }
    ui::print("");
}
