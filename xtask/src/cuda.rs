//! `cargo xtask cuda`: the toolkit, the module, and what is asked of our kernels.

pub mod setup;

use clap::Subcommand;

use crate::error::Result;
use crate::place::Place;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Install the CUDA toolkit under the target folder, unless one is there
    ///
    /// It comes as Python wheels (0.5 GB to fetch, 0.9 GB on the disk), needs no root and leaves the system alone. A toolkit
    /// that CUDACXX names, that lies on the PATH or in /usr/local/cuda is used where it works and holds cuBLAS. No GPU and
    /// no driver are needed to build.
    Setup,
}

/// Runs the command.
pub fn run(command: Command, place: &Place) -> Result<()> {
    match command {
        Command::Setup => setup::run(place),
    }
}
