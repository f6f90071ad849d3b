//! What a command can end with, and the exit code that belongs to it.

use crate::calibrate::CalibrateError;
use crate::exit;
use crate::fetch::FetchError;
use crate::gate::GateCommandError;
use crate::plan::PlanCommandError;
use crate::run::RunError;

/// Why the program does not end with 0. The message says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Gate(#[from] GateCommandError),
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    #[error(transparent)]
    Plan(#[from] PlanCommandError),
}

impl CliError {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            Self::Fetch(error) => error.exit_code(),
            Self::Gate(_) | Self::Calibrate(_) | Self::Plan(_) => exit::COULD_NOT_RUN,
        }
    }
}
