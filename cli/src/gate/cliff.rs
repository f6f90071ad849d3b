//! `rolling-kv gate cliff`.

use std::path::PathBuf;

use clap::Args;
use rolling_kv::{ModelParams, TailEngine};
use rolling_kv_gates::{Cliff, CliffPoint, CliffReport};
use serde_json::Value;

use super::args::{Kept, Subject};
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, row, with_bars};
use crate::device::{self, SimSpec};
use crate::line::Asked;
use crate::run::parse;
use crate::source::Source;
use crate::ui;

const MIB: f64 = 1_048_576.0;

/// The options of `rolling-kv gate cliff`.
#[derive(Args)]
pub struct CliffArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// The simulated device, such as sim:mem=2GiB,link=6.4GB/s; its link is what matters
    ///
    /// Unless it says otherwise, its time is reckoned, with launch=10us and membw=400GB/s: the ratios are then those of the
    /// schedules, whatever this machine does meanwhile. With time=real the time of day is measured.
    #[arg(long, value_name = "sim:SPEC", default_value = "sim:link=6.4GB/s", value_parser = SimSpec::parse)]
    pub device: SimSpec,

    /// Tokens of context; a text fills all but the decoded ones
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Windows that are tried, from every cell to none; the first ones lie closer together
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub points: u32,

    /// Tokens decoded at each point; the first two do not count
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub decoded: u32,

    /// Cells that are brought to the device in one copy, for both schedules
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse::tile)]
    pub copy_cells: u32,

    /// Slots of the ring
    ///
    /// [default: chosen from the free device memory and the measured link]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ring_depth: Option<u32>,

    /// Seed of the built-in text
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub kept: Kept,
}

pub fn run(args: &CliffArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let link = args
        .device
        .link_bytes_per_s()
        .ok_or(GateCommandError::Link)?;
    let device = args.device.for_timing();
    let gate = Cliff {
        n_ctx: args.ctx,
        points: args.points,
        decoded: args.decoded,
        copy_cells: args.copy_cells,
        ring_depth: args.ring_depth,
        link_bytes_per_s: link,
        seed: args.seed,
        thresholds: asked.thresholds()?,
    };
    let harness = Harness::gate("cliff", &args.subject, args.plot.as_deref(), &source, asked)?
        .with("device", format!("sim:{}", device.0));
    harness.announce();

    let backend = device::start(Some(&device))?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, None)?;
    let report = with_bars(|progress| gate.run(&model, &mut store, progress))?;
    print(&report);
    harness.close(Found {
        judged: &report.judged,
        n_ctx: gate.n_ctx,
        window_cells: report.points.iter().map(|p| p.window_cells).collect(),
        device: Some(&device),
        engine: TailEngine::Stream.name(),
        seed: gate.seed,
        inject: Value::Null,
        metrics: metrics(&report),
        page: &|settings| report.html(settings),
        picture: &|| report.svg(),
        accepted: None,
    })
}

fn print(report: &CliffReport) {
    ui::print(&format!(
        "{} prompt tokens; ring of {} slots of {:.2} MiB\n",
        report.prompt_tokens,
        report.ring_depth,
        report.slot_bytes as f64 / MIB
    ));
    ui::print(&row(10, &CliffPoint::HEAD));
    for point in &report.points {
        ui::print(&row(10, &point.cells()));
    }
    ui::print(&format!(
        "\nthe ring hides a tail of up to {:.1} MiB",
        report.hidden_bytes / MIB
    ));
}
