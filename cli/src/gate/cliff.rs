//! `rolling-kv gate cliff`.

use rolling_kv::ModelParams;
use rolling_kv_gates::{Cliff, CliffPoint, CliffReport};
use serde_json::Value;

use super::args::CliffArgs;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, row, with_bars};
use crate::line::Asked;
use crate::source::Source;
use crate::{device, ui};

const MIB: f64 = 1_048_576.0;

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
