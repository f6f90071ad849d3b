//! `rolling-kv gate plan`.

use rolling_kv::{ModelParams, ModelShape, PlanEngine};
use rolling_kv_gates::{PlanCheck, PlanPoint, PlanReport};
use serde_json::json;

use super::args::{PlanEngineArg, PlanGateArgs};
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, row, with_bars};
use crate::device::{self, DeviceArg};
use crate::line::Asked;
use crate::source::Source;
use crate::ui;

pub fn run(args: &PlanGateArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let Source::File(path) = &source else {
        return Err(GateCommandError::NoHeader);
    };
    let shape = ModelShape::of_file(path)?;
    let device = args.device.for_timing();
    let gate = PlanCheck {
        n_ctx: args.ctx,
        points: args.points,
        decoded: args.decoded,
        engines: args.engines.iter().map(|engine| engine.meant()).collect(),
        host_bytes_per_s: Some(
            device
                .host_bytes_per_s()
                .ok_or(GateCommandError::HostRate)?,
        ),
        halved: args.inject.is_some(),
        seed: args.seed,
        thresholds: asked.thresholds()?,
    };
    let harness = Harness::gate("plan", &args.subject, args.plot.as_deref(), &source, asked)?
        .with("device", format!("sim:{}", device.0));
    harness.announce();

    let backend = device::start(Some(&device))?;
    let found = DeviceArg::find(None, backend)?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, None)?;
    let report =
        with_bars(|progress| gate.run(backend, found, &model, &shape, &mut store, progress))?;
    print(&report);
    let mut windows: Vec<u32> = report
        .points
        .iter()
        .map(|point| point.window_cells)
        .collect();
    windows.dedup();
    let engines: Vec<_> = gate.engines.iter().map(ToString::to_string).collect();
    harness.close(Found {
        judged: &report.judged,
        n_ctx: gate.n_ctx,
        window_cells: windows,
        device: Some(&device),
        engine: &engines.join(", "),
        seed: gate.seed,
        inject: json!(args.inject.map(|_| "halved")),
        metrics: metrics(&report),
        page: &|settings| report.html(settings),
        picture: &|| report.svg(),
        accepted: None,
    })
}

fn print(report: &PlanReport) {
    ui::print(&format!("{}\n", report.rates_line()));
    ui::print(&row(11, &PlanPoint::HEAD));
    for point in &report.points {
        ui::print(&row(11, &point.cells()));
    }
    ui::print("");
}

impl PlanEngineArg {
    fn meant(self) -> PlanEngine {
        match self {
            Self::Stream => PlanEngine::Stream,
            Self::Host => PlanEngine::Host,
            Self::Hybrid => PlanEngine::Hybrid,
        }
    }
}
