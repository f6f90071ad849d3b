//! `cargo xtask cuda`: the toolkit, the module, and what is asked of our kernels.

mod before;
mod build;
pub mod bundle;
mod check;
mod compile;
mod cubin;
mod fatbin;
pub mod kernels;
mod names;
mod ptxas;
mod registers;
pub mod rehearse;
mod setup;
mod symbols;
mod vendors;

pub use build::beside as build_beside;

use std::path::PathBuf;

use clap::Subcommand;
use rolling_kv_stage::cuda::Archs;

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

    /// Build the patched CUDA module, and check what came out
    ///
    /// The first time it compiles all of upstream's kernels: on two cores about twenty minutes for each card of the list.
    /// Later it compiles what changed. It prints time and size, and reads from the library that it exports what ggml's loader
    /// asks for, needs nothing but ggml-base, CUDA's runtime and the system, holds code for every card of the list, and was
    /// built from these patches and kernels. `cargo build --features cuda` builds the same module and puts it beside the
    /// others.
    Build {
        /// The cards, as compute capabilities without their point [default: ROLLING_KV_CUDA_ARCH, else 80,86,89,90]
        #[arg(long, value_name = "LIST", value_parser = Archs::parse)]
        arch: Option<Archs>,
    },

    /// Put what gates/gpu.sh needs on a machine with a card into a folder that can be moved
    ///
    /// Programs, libraries, the CUDA module, the small model and the script. There the script is one command of less than eight
    /// minutes; it needs neither cargo nor a toolkit.
    Bundle {
        /// Where to put it
        dir: PathBuf,
        #[command(flatten)]
        contents: bundle::Contents,
    },

    /// Run the module without a card, on a CUDA runtime that computes nothing
    ///
    /// Kernels do nothing there; copies, streams, events, captured graphs and host functions are carried out. It shows what the module asks
    /// for: that the ring, the host engine and captured graphs are engaged on one device and on two, that a step allocates nothing, and that a
    /// want of memory is an error. Builds the module first.
    Rehearse {
        /// The cards that the module is for, as in `cargo xtask cuda build`
        #[arg(long, value_name = "LIST", value_parser = Archs::parse)]
        arch: Option<Archs>,
    },

    /// Say how many registers each kernel takes, and what the patches changed in upstream's
    ///
    /// Compiles our CUDA files, and those of upstream's that a patch touches before and after it, for two cards, and compares
    /// the machine code kernel by kernel. Fails if one of ours spills registers to memory, or if one of upstream's does so more
    /// than before. No GPU is needed.
    Registers,
}

/// Runs the command.
pub fn run(command: Command, place: &Place) -> Result<()> {
    match command {
        Command::Setup => setup::run(place),
        Command::Build { arch } => build::run(place, arch),
        Command::Bundle { dir, contents } => bundle::run(place, &dir, &contents),
        Command::Rehearse { arch } => rehearse::run(place, arch),
        Command::Registers => registers::run(place),
    }
}
