//! `rolling-kv gate engines`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rolling_kv::{Model, ModelParams, StateBlob};
use rolling_kv_gates::{
    EngineFault, Engines, EnginesLink, EnginesPoint, EnginesReport, GateError, Rates,
};
use serde_json::json;

use super::args::{Kept, Subject};
use super::engines_apart::Apart;
use super::error::GateCommandError;
use super::harness::{Found, Harness, metrics, row, with_bars};
use crate::device::{self, Rate, SimSpec};
use crate::line::Asked;
use crate::run::{self, parse};
use crate::source::Source;
use crate::ui;

/// The options of `rolling-kv gate engines`.
#[derive(Args)]
pub struct EnginesArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// Bandwidths of the device's link, with commas between them
    ///
    /// A process has one simulated device, so that each of several links is measured by a process of its own.
    #[arg(long, value_name = "LIST", default_value = "1.6GB/s,6.4GB/s,25GB/s", value_delimiter = ',', value_parser = Rate::parse)]
    pub links: Vec<Rate>,

    /// Bytes of K and V that the host attends to in a second
    #[arg(long, value_name = "RATE", default_value = "16GB/s", value_parser = Rate::parse)]
    pub host_rate: Rate,

    /// What else the simulated device is, such as sim:mem=2GiB,latency=10us; link and host rate have options of their own
    ///
    /// Unless it says otherwise, its time is reckoned, with launch=10us and membw=400GB/s: the ratios are then those of the engines,
    /// whatever this machine does meanwhile. With time=real the time of day is measured.
    #[arg(long, value_name = "sim:SPEC", default_value = "sim", value_parser = SimSpec::parse)]
    pub device: SimSpec,

    /// Tokens of context; a text fills all but the decoded ones
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Tails that are tried, in percent of the context, with commas between them
    #[arg(long, value_name = "LIST", default_value = "25,50,100", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100))]
    pub tail_percent: Vec<u32>,

    /// Tokens decoded before any counts, while the split settles
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub settling: u32,

    /// Tokens decoded that count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub decoded: u32,

    /// Cells of a tile, a multiple of 32; a split is whole tiles
    ///
    /// [default: 128]
    #[arg(long, value_name = "N", value_parser = parse::tile)]
    pub tile_cells: Option<u32>,

    /// Cells that are brought to the device in one copy
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse::tile)]
    pub copy_cells: u32,

    /// CPU threads, of the device's arithmetic and of the host
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the built-in text
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Put a fault into the runs with a tail; the gate must then fail
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<FaultArg>,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// The text as another process read it
    #[arg(long, value_name = "FILE", hide = true)]
    pub saved: Option<PathBuf>,

    #[command(flatten)]
    pub kept: Kept,
}

/// The faults.
#[derive(Clone, Copy, ValueEnum)]
pub enum FaultArg {
    /// The host begins before its query is there
    HostEarly,
    /// Nobody waits for what the host computes
    HostUnwaited,
    /// Link and host run at half of the rates that the bound is reckoned with
    HalfRates,
}

impl From<FaultArg> for EngineFault {
    fn from(fault: FaultArg) -> Self {
        match fault {
            FaultArg::HostEarly => Self::HostEarly,
            FaultArg::HostUnwaited => Self::HostUnwaited,
            FaultArg::HalfRates => Self::HalfRates,
        }
    }
}

/// Cells of a tile unless it is said.
const TILE: u32 = 128;

pub fn run(args: &EnginesArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    let source = Source::of(&args.subject.model)?;
    if args.device.says("link") || args.device.says("hostbw") {
        return Err(GateCommandError::RateOfDevice);
    }
    let thresholds = asked.thresholds()?;
    let gate = gate(args);
    let plot = args.plot.as_deref();
    let harness = Harness::gate("engines", &args.subject, plot, &source, asked)?;
    let device = match &args.links[..] {
        [link] => device_behind(args, link),
        _ => args.device.for_timing(),
    };
    let harness = harness.with("device", format!("sim:{}", device.0));
    harness.announce();

    let links = match &args.links[..] {
        [link] => vec![one(args, &gate, link, &source, &harness)?],
        _ => each(args, &gate, asked, &source, &harness)?,
    };
    let report = EnginesReport::judge(links, &thresholds)?;
    print(&report);
    let points = report.links.iter().flat_map(|link| &link.points);
    let mut windows: Vec<u32> = points.map(|point| point.window_cells).collect();
    windows.sort_unstable();
    windows.dedup();
    harness.close(Found {
        judged: &report.judged,
        n_ctx: gate.n_ctx,
        window_cells: windows,
        device: Some(&device),
        engine: "stream, host, hybrid and auto",
        seed: gate.seed,
        inject: json!(gate.inject),
        metrics: metrics(&report),
        page: &|settings| report.html(settings),
        picture: &|| report.svg(),
        accepted: None,
    })
}

fn gate(args: &EnginesArgs) -> Engines {
    Engines {
        n_ctx: args.ctx,
        tail_percent: args.tail_percent.clone(),
        tile_cells: args.tile_cells.unwrap_or(TILE),
        copy_cells: args.copy_cells,
        settling: args.settling,
        decoded: args.decoded,
        threads: args.threads.unwrap_or_else(run::fitting_threads),
        seed: args.seed,
        inject: args.inject.map(Into::into),
    }
}

/// The device with its rates, or with half of them.
fn device_behind(args: &EnginesArgs, link: &Rate) -> SimSpec {
    let share = match args.inject {
        Some(FaultArg::HalfRates) => 0.5,
        _ => 1.0,
    };
    let (link, host) = (link.of(share), args.host_rate.of(share));
    let SimSpec(spec) = args.device.for_timing();
    SimSpec(format!("{spec},link={link},hostbw={host}"))
}

/// Measures behind one link, in this process.
fn one(
    args: &EnginesArgs,
    gate: &Engines,
    link: &Rate,
    source: &Source,
    harness: &Harness<'_>,
) -> Result<EnginesLink, GateCommandError> {
    let backend = device::start(Some(&device_behind(args, link)))?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, None)?;
    let saved = args.saved.as_deref().map(read_saved).transpose()?;
    let rates = Rates {
        link_bytes_per_s: link.bytes_per_s(),
        host_bytes_per_s: args.host_rate.bytes_per_s(),
    };
    let found = with_bars(|progress| gate.measure(&model, rates, saved, &mut store, progress))?;
    Ok(found)
}

/// Measures behind each link, in a process of its own. The text is read once, here, where no device is in the way.
fn each(
    args: &EnginesArgs,
    gate: &Engines,
    asked: &Asked,
    source: &Source,
    harness: &Harness<'_>,
) -> Result<Vec<EnginesLink>, GateCommandError> {
    let backend = device::start(None)?;
    let model = source.load(&backend, &ModelParams::default())?;
    let mut store = harness.store(args.kept.results.as_ref(), &model, None)?;
    let apart = Apart::new(asked, args.kept.results.as_deref())?;
    let mut links = Vec::new();
    for link in &args.links {
        links.push(store.get(&format!("link {link}"), || {
            if !apart.has_text() {
                apart.keep_text(&read(gate, &model)?)?;
            }
            apart.measure(link)
        })?);
    }
    Ok(links)
}

fn read(gate: &Engines, model: &Model) -> Result<StateBlob, GateError> {
    with_bars(|progress| gate.read(model, progress))
}

fn read_saved(file: &Path) -> Result<StateBlob, GateCommandError> {
    let bytes = fs::read(file).map_err(|source| GateCommandError::Text {
        path: file.into(),
        source,
    })?;
    Ok(StateBlob::from_bytes(bytes).map_err(GateError::from)?)
}

fn print(report: &EnginesReport) {
    for link in &report.links {
        ui::print(&format!(
            "{}; {} prompt tokens\n",
            link.title(),
            link.prompt_tokens
        ));
        ui::print(&row(10, &EnginesPoint::HEAD));
        for point in &link.points {
            ui::print(&row(10, &point.cells()));
        }
        ui::print("");
    }
    ui::print(&format!("{}\n", EnginesPoint::LEGEND));
}
