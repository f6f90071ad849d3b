//! `rolling-kv gate shift`.

use rolling_kv::{ModelParams, TailEngine};
use rolling_kv_gates::{Shift, ShiftErrors, ShiftReport};
use serde_json::json;

use super::args::ShiftArgs;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, row, with_bars};
use crate::line::Asked;
use crate::source::Source;
use crate::{device, run, ui};

pub fn run(args: &ShiftArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    let gate = Shift {
        tokens: args.tokens,
        most: args.most as i32,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        misplace: args.inject.is_some(),
        thresholds: asked.thresholds()?,
    };
    let plot = args.plot.as_deref();
    let harness = Harness::gate("shift", &args.subject, plot, &source, asked)?;
    harness.announce();

    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, None)?;
    let report = with_bars(|progress| gate.run(&model, &mut store, progress))?;
    print(&report);
    harness.close(Found {
        judged: &report.judged,
        n_ctx: gate.tokens,
        window_cells: vec![gate.window_cells()],
        device: args.device.as_ref(),
        engine: TailEngine::Auto.name(),
        seed: gate.seed,
        inject: json!(gate.misplace.then_some("misplace")),
        metrics: metrics(&report),
        page: &|settings| report.html(settings),
        picture: &|| report.svg(),
        accepted: None,
    })
}

fn print(report: &ShiftReport) {
    ui::print(&format!(
        "{} keys a point; root mean square of the error over that of the keys (max: of one channel)\n",
        report.keys
    ));
    ui::print(&row(9, &ShiftErrors::HEAD));
    for errors in &report.points {
        ui::print(&row(9, &errors.cells()));
    }
    let moves = report.moves_to_q8_0.map_or(String::new(), |moves| {
        format!("; f16 keys are as far off as q8_0 after {moves:.0} moves of 256 positions")
    });
    ui::print(&format!(
        "\nwithout a move: f16 is {:.2e} off f32, q8_0 {:.2e}{moves}",
        report.f16_stored, report.q8_0_stored
    ));
}
