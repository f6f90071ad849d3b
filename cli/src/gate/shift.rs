//! `rolling-kv gate shift`.

use rolling_kv::ModelParams;
use rolling_kv_gates::{Shift, ShiftErrors, ShiftReport};
use serde_json::json;

use super::args::ShiftArgs;
use super::error::GateCommandError;
use super::files::{check_folder, close, with_bars, write_json, write_plot};
use crate::source::Source;
use crate::{device, run, ui};

pub fn run(args: &ShiftArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    for file in args.subject.json.iter().chain(&args.plot) {
        check_folder(file)?;
    }
    let gate = Shift {
        tokens: args.tokens,
        most: args.most as i32,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        misplace: args.inject.is_some(),
    };
    let inject = if gate.misplace {
        ", inject misplace"
    } else {
        ""
    };
    ui::print(&format!(
        "gate shift: model {}, device {}, {} tokens, positions up to {}, seed {}{inject}",
        source,
        args.device.as_ref().map_or("CPU", |device| &device.0),
        gate.tokens,
        gate.most,
        gate.seed,
    ));
    let backend = device::start(args.device.as_ref())?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| gate.run(&model, progress))?;
    print(&report);
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        let object = json!({
            "gate": "shift",
            "verdict": report.verdict,
            "model": source.to_string(),
            "n_ctx": gate.tokens,
            "window_cells": gate.tokens / 2 / 32 * 32,
            "backend": args.device.as_ref().map_or("CPU".to_owned(), |device| format!("sim:{}", device.0)),
            "seed": gate.seed,
            "inject": gate.misplace.then_some("misplace"),
            "metrics": report,
            "thresholds": report.reasons,
        });
        write_json(file, &object)?;
    }
    if let Some(file) = &args.plot {
        write_plot(file, report.svg())?;
    }
    Ok(code)
}

/// One row: what moved, and the errors.
fn row(errors: &ShiftErrors) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2e}"));
    let point = &errors.point;
    format!(
        "{:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        format!("{:?}", point.series).to_lowercase(),
        point.target,
        point.step,
        point.count,
        number(Some(errors.f16)),
        number(Some(errors.f16_max)),
        number(Some(errors.f16_stock)),
        number(Some(errors.q8_0)),
        number(errors.q8_0_stock),
        number(Some(errors.f32_stock)),
        number(errors.fresh_exact),
        number(errors.origin_exact),
    )
}

fn print(report: &ShiftReport) {
    ui::print(&format!(
        "{} keys a point; root mean square of the error over that of the keys (max: of one channel)\n",
        report.keys
    ));
    ui::print(&format!(
        "{:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "varied",
        "target",
        "step",
        "moves",
        "f16",
        "f16 max",
        "its stock",
        "q8_0",
        "its stock",
        "f32 stock",
        "fresh",
        "at origin"
    ));
    for errors in &report.points {
        ui::print(&row(errors));
    }
    ui::print(&format!(
        "\nwithout a move: f16 is {:.2e} off f32, q8_0 {:.2e}; f16 keys are as far off as q8_0 after {:.0} moves of 256 positions",
        report.f16_stored, report.q8_0_stored, report.moves_to_q8_0
    ));
}
