//! Why a plan could not be made.

use std::io;
use std::path::PathBuf;

use rolling_kv::{BackendError, LoadError, PlanError};

use crate::calibrate::CalibrationFileError;
use crate::device::NoSuchDevice;
use crate::models::ModelPathError;

/// Why a plan could not be made. A model that does not fit is an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanCommandError {
    #[error(transparent)]
    ModelPath(#[from] ModelPathError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Device(#[from] NoSuchDevice),
    #[error(transparent)]
    Calibration(#[from] CalibrationFileError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Machines(#[from] MachinesError),
    #[error("the plan could not be drawn: {0}\n  next: leave out --plot")]
    Draw(String),
    #[error("cannot write {}: {source}\n  next: check the folder, or leave out --plot", path.display())]
    Output { path: PathBuf, source: io::Error },
}

/// What is wrong with a file of machines, or with the name of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachinesError {
    #[error("cannot read the machines {}: {source}\n  next: check the path, or leave out --machines", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{file} is no file of machines: {message}\n  next: see one with `rolling-kv plan --list-machines --toml`"
    )]
    Form { file: String, message: String },
    #[error(
        "{file} is of version {found}, and this program reads version {known}\n  next: write it anew, starting with `rolling-kv plan --list-machines --toml`"
    )]
    Version {
        file: String,
        found: i64,
        known: i64,
    },
    #[error("{file}: {what} is {value}\n  next: give a number above 0")]
    Number {
        file: String,
        what: String,
        value: f64,
    },
    #[error(
        "{file}: {what} has no reason\n  next: say in `why` what the number is, and in `source` where it was read, or none"
    )]
    Reason { file: String, what: String },
    #[error(
        "{file}: machine {machine} names the {kind} {name:?}, which the file does not have\n  next: name one of {known}"
    )]
    Part {
        file: String,
        machine: String,
        kind: &'static str,
        name: String,
        known: String,
    },
    #[error("there is no machine {name:?} in {file}\n  next: name one of {known}")]
    NoSuchMachine {
        file: String,
        name: String,
        known: String,
    },
}
