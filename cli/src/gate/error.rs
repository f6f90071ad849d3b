//! Why a gate could not run.

use std::io;
use std::path::PathBuf;

use rolling_kv::{BackendError, LoadError};
use rolling_kv_gates::{GateError, SpecError};

use crate::device::NoSuchDevice;
use crate::models::ModelPathError;

/// Why a gate could not run. That is neither a pass nor a failure of what it tests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateCommandError {
    #[error(transparent)]
    ModelPath(#[from] ModelPathError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Device(#[from] NoSuchDevice),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("{file}, line {line}: gate {gate} has no option {name:?}\n  next: name one of {known}")]
    UnknownSpecOption {
        file: String,
        line: usize,
        name: String,
        gate: String,
        known: String,
    },
    #[error("{place}: {message}\n  next: see what is allowed with `rolling-kv gate {gate} --help`")]
    SpecOption {
        place: String,
        message: String,
        gate: String,
    },
    #[error("cannot read the text {}: {source}\n  next: check the path, or leave out --text", path.display())]
    Text { path: PathBuf, source: io::Error },
    #[error("the text {} is empty\n  next: give another one, or leave out --text", path.display())]
    EmptyText { path: PathBuf },
    #[error(
        "the bandwidth of the device's link is not understood\n  next: give it as link=6.4GB/s"
    )]
    Link,
    #[error("the latency of the device's link is not understood\n  next: give it as latency=10us")]
    Latency,
    #[error("the rate of the host's kernel is not understood\n  next: give it as hostbw=20GB/s")]
    HostRate,
    #[error(
        "a plan reads the header of the model's file, and a tiny model has none\n  next: give a .gguf file, or smollm2"
    )]
    NoHeader,
    #[error(
        "the device says what its link or its host brings\n  next: give that with --links and --host-rate, of which there can be several"
    )]
    RateOfDevice,
    #[error("the picture could not be drawn: {0}\n  next: leave out --plot and --html")]
    Draw(String),
    #[error("a flipped byte is a fault of `gate logit-equiv`\n  next: use --inject drop or stale")]
    NoFlip,
    #[error("cannot write {}: {source}\n  next: check the folder, or leave out --{option}", path.display())]
    Output {
        option: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}
