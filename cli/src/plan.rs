//! `rolling-kv plan`: what fits a machine and how fast it would be, before anything is loaded.

mod args;
mod error;
mod machines;
mod report;
mod shape;

pub use args::PlanArgs;
pub use error::PlanCommandError;

use std::fs;

use rolling_kv::{KvType, ModelShape, Plan, PlanRequest, Rates, plan as make_plan};
use rolling_kv_gates::{PlanCurve, plan_svg};

use crate::calibrate;
use crate::device::{self, DeviceArg};
use crate::run::kv_type;
use crate::{exit, models, ui};
use machines::Machines;
use report::Report;

/// Depths of the plot.
const POINTS: u32 = 48;

/// Runs the command and answers the exit code: 1 when it does not fit.
pub fn plan(args: &PlanArgs) -> Result<u8, PlanCommandError> {
    if args.list_machines {
        return list(args);
    }
    let (model, shape) = model(args)?;
    let (machine, rates) = rates(args)?;
    let request = request(args);
    let found = make_plan(&rates, &shape, &request)?;
    if let Some(path) = &args.plot {
        let svg = draw(args, &shape, &rates, &found, &machine)?;
        fs::write(path, svg).map_err(|source| PlanCommandError::Output {
            path: path.clone(),
            source,
        })?;
    }
    let report = Report {
        model,
        machine,
        shape: &shape,
        rates: &rates,
        plan: &found,
        depth: depth(args),
        streams: args.streams,
        types: types(args),
        tail_types: tail_types(args),
        tile_cells: args.tile_cells,
    };
    if args.json {
        ui::print(&format!("{:#}", report.json()));
    } else {
        ui::print(&report.text());
    }
    Ok(if found.fit.fits() {
        exit::OK
    } else {
        exit::FAILURE
    })
}

fn list(args: &PlanArgs) -> Result<u8, PlanCommandError> {
    if args.toml {
        ui::print(machines::BUILT_IN.trim_end());
    } else {
        ui::print(
            Machines::read(args.machines.as_deref())?
                .tables()?
                .trim_end(),
        );
    }
    Ok(exit::OK)
}

/// What to call the model in a command line, and its shape.
fn model(args: &PlanArgs) -> Result<(String, ModelShape), PlanCommandError> {
    if let Some(shape) = &args.shape {
        return Ok(("model.gguf".into(), shape.0.clone()));
    }
    let model = args.model.clone().unwrap_or_default();
    let path = models::resolve(&model)?;
    Ok((model.display().to_string(), ModelShape::of_file(path)?))
}

/// The machine's name and its rates.
fn rates(args: &PlanArgs) -> Result<(String, Rates), PlanCommandError> {
    if let Some(name) = &args.machine {
        let machines = Machines::read(args.machines.as_deref())?;
        return Ok((name.clone(), machines.of_name(name)?));
    }
    if let Some(path) = &args.rates {
        let file = calibrate::CalibrationFile::read(path)?;
        return Ok((file.machine.device_words(), file.rates));
    }
    let backend = device::start(DeviceArg::sim(args.device.as_ref()))?;
    let device = DeviceArg::find(args.device.as_ref(), backend)?;
    let file = calibrate::CalibrationFile::of_this_machine(device)?;
    Ok((file.machine.device_words(), file.rates))
}

fn depth(args: &PlanArgs) -> u32 {
    args.depth.or(args.ctx).unwrap_or_default()
}

fn types(args: &PlanArgs) -> (KvType, KvType) {
    (kv_type(&args.cache_type_k), kv_type(&args.cache_type_v))
}

fn tail_types(args: &PlanArgs) -> Option<(KvType, KvType)> {
    if args.tail_type_k.is_none() && args.tail_type_v.is_none() {
        return None;
    }
    let or_window =
        |tail: &Option<String>, window: &str| kv_type(tail.as_deref().unwrap_or(window));
    Some((
        or_window(&args.tail_type_k, &args.cache_type_k),
        or_window(&args.tail_type_v, &args.cache_type_v),
    ))
}

fn request(args: &PlanArgs) -> PlanRequest {
    let (k, v) = types(args);
    let mut request = PlanRequest::new(args.ctx.unwrap_or_default())
        .depth(depth(args))
        .streams(args.streams)
        .ubatch(args.ubatch)
        .tile_cells(args.tile_cells)
        .types(k, v);
    if let Some((k, v)) = tail_types(args) {
        request = request.tail_types(k, v);
    }
    if let Some(mib) = args.vram {
        request = request.vram_budget_mib(mib);
    }
    if let Some(cells) = args.window_cells {
        request = request.window_cells(cells);
    }
    request
}

/// Time of a token over the depth, with the window as it was planned.
fn draw(
    args: &PlanArgs,
    shape: &ModelShape,
    rates: &Rates,
    found: &Plan,
    machine: &str,
) -> Result<String, PlanCommandError> {
    let ctx = args.ctx.unwrap_or_default();
    let mut curves: Vec<PlanCurve> = found
        .engines
        .iter()
        .map(|plan| PlanCurve::new(plan.engine.name()))
        .collect();
    let mut resident = PlanCurve::new("if every cell were on the device");
    for at in 0..=POINTS {
        let depth = (u64::from(ctx) * u64::from(at) / u64::from(POINTS)) as u32;
        let there = make_plan(
            rates,
            shape,
            &request(args).depth(depth).window_cells(found.window_cells),
        )?;
        for (curve, plan) in curves.iter_mut().zip(&there.engines) {
            curve.points.push((f64::from(depth), plan.step_s * 1e3));
        }
        resident
            .points
            .push((f64::from(depth), there.resident_step_s * 1e3));
    }
    curves.push(resident);
    let caption = format!(
        "{} on {machine}: window of {} cells, as predicted",
        shape.name, found.window_cells
    );
    plan_svg(&caption, &curves).map_err(PlanCommandError::Draw)
}
