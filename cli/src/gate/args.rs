//! The options of the gates.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use rolling_kv_gates::ruler::Task;
use rolling_kv_gates::{Inject, Spec, Spot};

use super::budget::BudgetArgs;
use super::cliff::CliffArgs;
use super::engines::EnginesArgs;
use super::parse as gate_parse;
use crate::device::SimSpec;
use crate::run::{CACHE_TYPES, EngineArg, TAIL_TYPES, parse};

/// The options of `rolling-kv gate`.
#[derive(Args)]
pub struct GateArgs {
    #[command(subcommand)]
    pub gate: Gate,
}

/// The gates.
#[derive(Subcommand)]
pub enum Gate {
    /// Compare the logits of a spilled cache with those of a resident one and of llama.cpp's own attention
    LogitEquiv(LogitEquivArgs),

    /// Measure what a tail costs, on a simulated device: decode time over its length, for the ring and for copies that wait
    Cliff(CliffArgs),

    /// Measure what a tail costs by who attends to it, on a simulated device: the device over its link, the host where it lies, or both
    Engines(EnginesArgs),

    /// Measure what moving tokens to other positions costs in precision: keys that were turned, beside keys that were made there
    Shift(ShiftArgs),

    /// Ask for needles in a haystack (RULER's tasks), with the cache resident and spilled: both must say the same, bit by bit
    Niah(NiahArgs),

    /// Find how to spend a budget of device memory: by placing cells, which changes no bit, and by layers that see less, which does
    Budget(BudgetArgs),

    /// Check predictions: a plan's time of a decode step against the measured one, on a simulated device
    Plan(PlanGateArgs),

    /// Run the gate that a spec names, with its options and its thresholds
    ///
    /// A spec is a file that holds a gate's options, under their names of the command line, and the numbers by which it is judged, each
    /// with its reason. What is given behind it wins over what it says.
    #[command(override_usage = RUN_USAGE)]
    Run(RunArgs),
}

const RUN_USAGE: &str = "\
rolling-kv gate run SPEC [OPTIONS OF ITS GATE]
       rolling-kv gate run --print NAME";

/// The options of `rolling-kv gate run`.
#[derive(Args)]
pub struct RunArgs {
    /// Spec to run: a file (.toml), or the name of a built-in one
    #[arg(value_name = "SPEC", required_unless_present = "print")]
    pub spec: Option<PathBuf>,

    /// Options of the spec's gate, such as -m model.gguf; they win over the spec's
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub options: Vec<OsString>,

    /// Print a built-in spec, to copy and to change, and do nothing else
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Spec::names()))]
    pub print: Option<String>,
}

/// Which model, and where what was found is kept.
#[derive(Args)]
pub struct Subject {
    /// Model file (.gguf), `smollm2` after `rolling-kv fetch smollm2`, or a tiny random model such as `tiny:llama`, made in memory
    #[arg(short, long, value_name = "MODEL")]
    pub model: PathBuf,

    /// Write what was found to this file, as one JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a report to this file: one page, to read in a browser and to send
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Where a gate keeps what it measures.
#[derive(Args)]
pub struct Kept {
    /// Keep every result in this folder as it comes, and take from it what is there: a run that was interrupted goes on
    ///
    /// The folder is made if it is not there. Thresholds are no part of what is kept, so that the same results can be judged by others.
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
}

/// The options of `rolling-kv gate logit-equiv`.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct LogitEquivArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// Tokens of context; the text fills it
    #[arg(long, value_name = "N", default_value_t = 6144, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Cells of each layer in the window; the others lie in the tail. Several with commas between them are one run each
    #[arg(long, value_name = "LIST", default_value = "1024", value_delimiter = ',', value_parser = parse::token_count)]
    pub window_cells: Vec<u32>,

    /// The same in percent of the context, such as 50,25,10
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "window_cells", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub window_percent: Vec<u32>,

    /// Cells of a tile, a multiple of 32
    ///
    /// [default: 128]
    #[arg(long, value_name = "N", value_parser = parse::tile)]
    pub tile_cells: Option<u32>,

    /// How K and V are stored
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = PossibleValuesParser::new(CACHE_TYPES))]
    pub cache_type: String,

    /// How K and V are stored in host memory: a smaller type
    ///
    /// Bits then depend on where a cell lies, and are not compared; the spilled cache must be as near to one of f16 as a cache that is wholly of this type.
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(TAIL_TYPES))]
    pub tail_type: Option<String>,

    /// CPU threads
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the built-in text
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Text to use instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Run on a simulated device, such as sim:mem=512MiB,link=6.4GB/s; see docs/SIM.md
    #[arg(long, value_name = "sim:SPEC", value_parser = SimSpec::parse)]
    pub device: Option<SimSpec>,

    /// Who attends to the tail in steps of few tokens, on a device: the device over its link, the host where it lies, or both
    ///
    /// With host and hybrid the gate fails if the host attended to nothing.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineArg::Auto)]
    pub tail_engine: EngineArg,

    /// Put a fault into the spilled run; the gate must then fail
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<InjectArg>,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub kept: Kept,
}

/// The options of `rolling-kv gate plan`.
#[derive(Args)]
pub struct PlanGateArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// The simulated device, such as sim:mem=2GiB,link=6.4GB/s
    ///
    /// Unless it says otherwise, its time is reckoned, with launch=10us and membw=400GB/s. With time=real the time of day is measured.
    #[arg(long, value_name = "sim:SPEC", default_value = "sim:link=6.4GB/s", value_parser = SimSpec::parse)]
    pub device: SimSpec,

    /// Tokens of context; a text fills all but the decoded ones
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse::tokens)]
    pub ctx: u32,

    /// Windows that are tried, from every cell to none
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub points: u32,

    /// Tokens decoded at each point; the first two do not count
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub decoded: u32,

    /// Engines that are tried, with commas between them
    #[arg(
        long,
        value_name = "LIST",
        default_value = "stream,host,hybrid",
        value_delimiter = ','
    )]
    pub engines: Vec<PlanEngineArg>,

    /// Reckon with rates of half the speed; the gate must then fail
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<PlanFault>,

    /// Seed of the built-in text
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub kept: Kept,
}

/// An engine whose predictions are checked.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanEngineArg {
    /// The tail comes to the device
    Stream,
    /// The host attends to the tail
    Host,
    /// Both, split so that they end together
    Hybrid,
}

/// The fault of `gate plan`.
#[derive(Clone, Copy, ValueEnum)]
pub enum PlanFault {
    /// Everything takes twice as long as it does
    Halved,
}

/// The options of `rolling-kv gate shift`.
#[derive(Args)]
pub struct ShiftArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// Tokens whose keys are compared, half of them in the tail; a multiple of 64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parse::moved_tokens)]
    pub tokens: u32,

    /// The highest position that keys are moved from
    #[arg(long, value_name = "N", default_value_t = 110_000, value_parser = clap::value_parser!(u32).range(17..=10_000_000))]
    pub most: u32,

    /// CPU threads
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the tokens
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Run on a simulated device, such as sim:mem=512MiB,link=6.4GB/s; see docs/SIM.md
    #[arg(long, value_name = "sim:SPEC", value_parser = SimSpec::parse)]
    pub device: Option<SimSpec>,

    /// Compare with keys that were made one position too far; the gate must then fail
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<ShiftFault>,

    /// Draw what was found into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub kept: Kept,
}

/// The options of `rolling-kv gate niah`.
#[derive(Args)]
pub struct NiahArgs {
    #[command(flatten)]
    pub subject: Subject,

    /// RULER's tasks, with commas between them, or all: niah_single_1 to 3, niah_multikey_1 to 3, niah_multivalue, niah_multiquery,
    /// vt, cwe, fwe
    #[arg(long, value_name = "LIST", default_value = "niah_single_1", value_delimiter = ',', value_parser = gate_parse::task)]
    pub tasks: Vec<Task>,

    /// Tokens of a question, exactly; several with commas between them
    #[arg(long, value_name = "LIST", default_value = "512,1024,2048,4096", value_delimiter = ',', value_parser = parse::tokens)]
    pub lengths: Vec<u32>,

    /// Where the needle stands: percent of the text, or window, tail, border, newest
    #[arg(long, value_name = "LIST", default_value = "0,25,50,75,100", value_delimiter = ',', value_parser = gate_parse::spot)]
    pub depths: Vec<Spot>,

    /// Cells of each layer in the window, in percent of the context
    #[arg(long, value_name = "P", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=95))]
    pub window_percent: u32,

    /// CPU threads
    ///
    /// [default: as many as this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Seed of the questions
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Essay to hide needles in, instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Run on a simulated device, such as sim:mem=512MiB,link=6.4GB/s; see docs/SIM.md
    #[arg(long, value_name = "sim:SPEC", value_parser = SimSpec::parse)]
    pub device: Option<SimSpec>,

    /// Who attends to the tail in steps of few tokens, on a device: the device over its link, the host where it lies, or both
    ///
    /// With host and hybrid the gate fails if the host attended to nothing.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineArg::Auto)]
    pub tail_engine: EngineArg,

    /// Put a fault into the spilled runs; the gate must then fail
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<InjectArg>,

    #[command(flatten)]
    pub kept: Kept,
}

/// The fault of `gate shift`.
#[derive(Clone, Copy, ValueEnum)]
pub enum ShiftFault {
    /// One position too far
    Misplace,
}

/// The faults.
#[derive(Clone, Copy, ValueEnum)]
pub enum InjectArg {
    /// Change one byte of a cell of the tail
    Flip,
    /// Leave the newest tile of the tail out
    Drop,
    /// Read the first tile of the tail as it was before it was written
    Stale,
}

impl From<InjectArg> for Inject {
    fn from(fault: InjectArg) -> Self {
        match fault {
            InjectArg::Flip => Self::Flip,
            InjectArg::Drop => Self::Drop,
            InjectArg::Stale => Self::Stale,
        }
    }
}
