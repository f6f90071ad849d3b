//! `rolling-kv gate cliff`.

use rolling_kv::ModelParams;
use rolling_kv_gates::{Cliff, CliffReport};
use serde_json::{Value, json};

use super::args::CliffArgs;
use super::error::GateCommandError;
use super::files::{check_folder, close, with_bars, write_json, write_plot};
use crate::device::{self, SimSpec};
use crate::source::Source;
use crate::ui;

const MIB: f64 = 1_048_576.0;

pub fn run(args: &CliffArgs) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    for file in args.subject.json.iter().chain(&args.plot) {
        check_folder(file)?;
    }
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
    };
    ui::print(&format!(
        "gate cliff: model {}, simulated device {}, ctx {}, {} cells a copy, seed {}",
        source, device.0, gate.n_ctx, gate.copy_cells, gate.seed,
    ));
    let backend = device::start(Some(&device))?;
    let model = source.load(&backend, &ModelParams::default())?;
    let report = with_bars(|progress| gate.run(&model, progress))?;
    print(&report);
    let code = close(report.verdict, &report.reasons);
    if let Some(file) = &args.subject.json {
        write_json(file, &object(&source, args, &device, &report))?;
    }
    if let Some(file) = &args.plot {
        write_plot(file, report.svg())?;
    }
    Ok(code)
}

fn print(report: &CliffReport) {
    ui::print(&format!(
        "{} prompt tokens; ring of {} slots of {:.2} MiB\n",
        report.prompt_tokens,
        report.ring_depth,
        report.slot_bytes as f64 / MIB
    ));
    ui::print(&format!(
        "{:>8} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "window",
        "tail MiB",
        "compute ms",
        "copy ms",
        "max ms",
        "ring ms",
        "ring/max",
        "sum ms",
        "op ms",
        "op/sum"
    ));
    for point in &report.points {
        ui::print(&format!(
            "{:>8} {:>9.1} {:>11.2} {:>9.2} {:>9.2} {:>9.2} {:>9.3} {:>9.2} {:>9.2} {:>9.3}",
            point.window_cells,
            point.tail_bytes / MIB,
            point.compute_ms,
            point.copy_ms,
            point.ideal_ms(),
            point.ring_ms,
            point.ring_ms / point.ideal_ms(),
            point.sum_ms(),
            point.op_ms,
            point.op_ms / point.sum_ms(),
        ));
    }
    ui::print(&format!(
        "\nthe ring hides a tail of up to {:.1} MiB",
        report.hidden_bytes / MIB
    ));
}

fn object(model: &Source, args: &CliffArgs, device: &SimSpec, report: &CliffReport) -> Value {
    json!({
        "gate": "cliff",
        "verdict": report.verdict,
        "model": model.to_string(),
        "n_ctx": args.ctx,
        "engine": "stream",
        "backend": format!("sim:{}", device.0),
        "seed": args.seed,
        "metrics": report,
        "thresholds": report.reasons,
    })
}
