//! The chores of this repository: `cargo xtask <command>`.

mod archs;
mod binaries;
mod cargo;
mod clone;
mod counts;
mod cuda;
mod demo;
mod dependent;
mod digest;
mod elf;
mod equality;
mod equiv;
mod error;
mod fresh;
mod git;
mod gpu;
mod kernels;
mod memcheck;
mod model;
mod moves;
mod native;
mod needle;
mod options;
mod origin;
mod parallel;
mod patches;
mod place;
mod process;
mod progress;
mod report;
mod screenshot;
mod server;
mod setup;
mod slot_files;
mod slots;
mod smoke;
mod speed;
mod sse;
mod steps;
mod story;
mod suite;
mod upstream;
mod vendor;
mod wheels;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rolling_kv_stage::Variant;
use rolling_kv_stage::cuda::Archs;

use crate::binaries::Cuda;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::upstream::{Depth, Whose};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The chores of this repository",
    after_help = AFTER_HELP,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Start here:
  cargo xtask demo    from a fresh clone to an answer of a real model
  cargo xtask test    every check that a change must pass

Everything is built under the target folder; llama.cpp and the model are kept in the user's cache folder
($ROLLING_KV_CACHE_DIR, else $XDG_CACHE_HOME/rolling-kv, else ~/.cache/rolling-kv).";

#[derive(Subcommand)]
enum Command {
    /// Set up what is missing, build, fetch a small model and let it answer two questions
    ///
    /// The second is about a text of 4000 tokens; it is answered with the whole KV cache on the device and with three
    /// quarters of it in host memory, and both answers must be the same and right. The answers go to standard output,
    /// everything else to standard error. The first run fetches about 200 MB and compiles llama.cpp; later ones take
    /// about a minute.
    Demo,

    /// Run every test, lint, documentation and format check
    ///
    /// Sets up what is missing first. Later steps run although an earlier one failed, as far as they can; a table at the end
    /// says what passed, failed or was skipped and why, and the exit code is 1 if anything failed.
    Test {
        /// Run only this step and what it needs; may be given several times
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Print the names of the steps and do nothing
        #[arg(long)]
        list: bool,
    },

    /// Run the gates: what must hold of a build beside its tests
    Gates {
        /// Also those that take long: faults put into the logit gate, long texts, all flash-attention cases, valgrind over all
        /// API tests, a fresh clone
        #[arg(long)]
        full: bool,
        /// Run only this gate and what it needs; may be given several times
        #[arg(long, value_name = "GATE")]
        only: Vec<String>,
    },

    /// Install cmake, ninja and libclang under the target folder, unless they are there
    ///
    /// They come as Python wheels, need no root and leave the system alone. Tools of the system are used where they work.
    Setup,

    /// The CUDA toolkit and the CUDA module
    #[command(subcommand)]
    Cuda(cuda::Command),

    /// Fetch the pinned llama.cpp tree into vendor/llama.cpp
    ///
    /// Not needed for a build, which also finds the tree in the user's cache folder; good for reading it.
    Vendor {
        /// Only print the hash of the tree in the pinned package, as vendor/UPSTREAM.toml wants it
        #[arg(long)]
        print_hash: bool,
    },

    /// Check the patches, or edit them as commits
    #[command(subcommand)]
    Patches(Patches),

    /// Build the patched llama.cpp programs into one folder that can be copied elsewhere
    Binaries {
        /// Where to put them [default: rolling-kv/binaries in the target folder, with --cuda binaries-cuda]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// With the CUDA module and NVIDIA's libraries that it needs (0.6 GB)
        #[arg(long)]
        cuda: bool,
        /// The cards that the module is for, as in `cargo xtask cuda build`
        #[arg(long, value_name = "LIST", value_parser = Archs::parse, requires = "cuda")]
        arch: Option<Archs>,
        /// Leave NVIDIA's libraries out: the machine that runs the programs has those of the same release
        #[arg(long, requires = "cuda")]
        without_nvidia: bool,
    },

    /// Build the unpatched llama-completion, llama-bench and llama-perplexity, to compare with
    Stock,

    /// Run every architecture with a spilled cache, and compare the table with docs/ARCHITECTURES.md
    Archs {
        /// Write the table into that file instead
        #[arg(long)]
        write: bool,
    },

    /// Measure whole programs: the patched llama-bench over the unpatched one, with and without a window
    Speed {
        /// Turns that count; each runs every contestant once
        #[arg(long, default_value_t = 5)]
        turns: usize,
        /// Tokens of the text behind which the second half is measured
        #[arg(long, default_value_t = 4096)]
        depth: u64,
        /// Threads [default: one for each core]
        #[arg(long)]
        threads: Option<usize>,
    },

    /// Build and run upstream's own tests on the patched tree
    UpstreamTests {
        /// Every flash-attention case, and the state tests on every architecture
        #[arg(long)]
        full: bool,
    },
}

#[derive(Subcommand)]
enum Patches {
    /// Apply every patch to a pristine tree; check series, headers and hooks
    Check,
    /// Make a git work tree with one commit per patch, to edit in
    Open {
        /// Where [default: rolling-kv/open in the target folder]
        dir: Option<PathBuf>,
    },
    /// Write the commits of that work tree back into patches/
    Refresh {
        /// The work tree [default: rolling-kv/open in the target folder]
        dir: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command, &Place::find()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, place: &Place) -> Result<ExitCode> {
    match command {
        Command::Demo => demo::run(place)?,
        Command::Test { list: true, .. } => suite::list(),
        Command::Test { only, list: false } => return suite::test(place, &only),
        Command::Gates { full, only } => return suite::gates(place, full, &only),
        Command::Setup => setup::run(place)?,
        Command::Cuda(command) => cuda::run(command, place)?,
        Command::Vendor { print_hash: true } => vendor::print_hash(place)?,
        Command::Vendor { print_hash: false } => vendor::run(place)?,
        Command::Patches(Patches::Check) => drop(patches::check(place)?),
        Command::Patches(Patches::Open { dir }) => patches::open(place, dir)?,
        Command::Patches(Patches::Refresh { dir }) => patches::refresh(place, dir)?,
        Command::Binaries {
            out,
            cuda,
            arch,
            without_nvidia,
        } => {
            setup::ensure(place)?;
            let cuda = cuda.then_some(Cuda {
                archs: arch,
                libraries: !without_nvidia,
            });
            let out = out.unwrap_or_else(|| binaries::default_out(place, cuda.as_ref()));
            binaries::run(place, &out, cuda.as_ref())?;
        }
        Command::Stock => {
            setup::ensure(place)?;
            println!(
                "{}",
                native::build(place, Variant::Stock, native::STOCK_PROGRAMS)?
                    .bin_dir()
                    .display()
            );
        }
        Command::Archs { write } => {
            setup::ensure(place)?;
            archs::run(place, write)?;
        }
        Command::Speed {
            turns,
            depth,
            threads,
        } => {
            setup::ensure(place)?;
            let cores = || std::thread::available_parallelism().map_or(1, usize::from);
            speed::run(place, turns.max(1), depth, threads.unwrap_or_else(cores))?;
        }
        Command::UpstreamTests { full } => {
            let counts = upstream::run(
                place,
                Whose::Everyones,
                if full { Depth::Full } else { Depth::Short },
            )?;
            println!("total: {counts}");
            if counts.failed > 0 {
                return Err(Error::wrong(
                    format!("{} of upstream's tests failed", counts.failed),
                    "see the lines above",
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Cli::command().get_subcommands() {
            assert!(
                command
                    .get_about()
                    .is_some_and(|about| about.to_string().len() > 20),
                "{}",
                command.get_name()
            );
        }
    }
}
