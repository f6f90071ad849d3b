//! `rolling-kv calibrate`: measures what this machine does, for plans.

mod file;
mod mark;

pub use file::{CalibrationFile, CalibrationFileError};

use std::path::{Path, PathBuf};

use clap::Args;
use rolling_kv::{
    BackendError, CalibrateParams, Calibration, Failure, Measured, calibrate as measure,
};

use crate::cache::NoCacheFolder;
use crate::device::{self, DeviceArg, NoSuchDevice, SimSpec};
use crate::run::{fitting_threads, parse};
use crate::{exit, ui};
use mark::MachineMark;

/// Steps of the bar.
const STEPS: u64 = 100;

/// The options of `rolling-kv calibrate`.
#[derive(Args)]
pub struct CalibrateArgs {
    /// The device whose link and memory are measured: a name such as CUDA0, or sim:link=6.4GB/s
    ///
    /// [default: the first device with memory of its own]
    #[arg(long, value_name = "DEVICE", value_parser = DeviceArg::parse)]
    pub device: Option<DeviceArg>,

    /// Measure the host alone
    #[arg(long, conflicts_with = "device")]
    pub host_only: bool,

    /// Threads of the host
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Runs of each measurement; the middle one counts
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,

    /// Keep what was found in this file, instead of your cache folder
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write one JSON object instead of text: what the file holds
    #[arg(long)]
    pub json: bool,
}

/// Why nothing could be measured, or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Device(#[from] NoSuchDevice),
    #[error(transparent)]
    File(#[from] CalibrationFileError),
    #[error(
        "the machine could not be measured: {0}\n  next: free some of its memory, or measure another --device"
    )]
    Measure(#[from] Failure),
    #[error(transparent)]
    NoFolder(#[from] NoCacheFolder),
}

/// Runs the command and answers the exit code.
pub fn calibrate(args: &CalibrateArgs) -> Result<u8, CalibrateError> {
    let backend = device::start(DeviceArg::sim(args.device.as_ref()))?;
    let device = match args.host_only {
        true => None,
        false => Some(DeviceArg::find(args.device.as_ref(), backend)?),
    };
    let mark = MachineMark::of_this(device);
    let path = match &args.out {
        Some(path) => path.clone(),
        None => file::place(&mark)?,
    };
    let mut params = CalibrateParams::new(args.threads.unwrap_or_else(fitting_threads));
    params.repeats = args.repeats as usize;
    params.host_kernel_bytes_per_s =
        DeviceArg::sim(args.device.as_ref()).and_then(SimSpec::host_bytes_per_s);

    let bar = ui::share_bar("measuring", STEPS);
    let found = measure(backend, device, &params, |what, share| {
        bar.set_message(what.to_owned());
        bar.set_position((share * STEPS as f64) as u64);
    });
    bar.finish_and_clear();
    let found = found?;
    let kept = CalibrationFile::new(mark, params.threads, &found);
    kept.write(&path)?;
    if args.json {
        ui::print(&kept.text());
    } else {
        ui::print(&report(&kept, &found, &path));
    }
    Ok(exit::OK)
}

/// For people.
fn report(kept: &CalibrationFile, found: &Calibration, path: &Path) -> String {
    let mut lines = vec![kept.machine.to_string()];
    if found.reckoned {
        lines.push(
            "the device's time is its own, reckoned one; the host's is the time of day".into(),
        );
    }
    lines.push(format!(
        "\n{:32} {:>10} {:>10} {:9} {:>5} {:>7}",
        "", "median", "best", "", "runs", "spread"
    ));
    lines.extend(found.measured.iter().map(row));
    lines.extend(
        found
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.push(format!("\nkept in {}", path.display()));
    lines.join("\n")
}

fn row(measured: &Measured) -> String {
    format!(
        "{:32} {:>10.3} {:>10.3} {:9} {:>5} {:>6.0}%",
        measured.what,
        measured.value,
        measured.best,
        measured.unit,
        measured.runs,
        100.0 * measured.spread
    )
}
