//! The options of `rolling-kv plan`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::shape::ShapeArg;
use crate::device::DeviceArg;
use crate::run::{CACHE_TYPES, parse};

/// A cache with a window is not of f32, which is the first of all types.
const WINDOW_TYPES: &[&str] = CACHE_TYPES.split_at(1).1;

/// The options of `rolling-kv plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// Model file (.gguf), of which only the header is read, or `smollm2` after `rolling-kv fetch smollm2`
    #[arg(short, long, value_name = "MODEL", required_unless_present_any = ["shape", "list_machines"])]
    pub model: Option<PathBuf>,

    /// A model that is not here: 14b, 70b, or its shape, such as layers=48,heads=40,kv-heads=8,head-dim=128,weights=9GiB
    ///
    /// vocab=, embd=, ff= and params= (such as 14.8B) make the plan of prompts and of working memory better.
    #[arg(long, value_name = "SHAPE", conflicts_with = "model", value_parser = ShapeArg::parse)]
    pub shape: Option<ShapeArg>,

    /// Tokens of context
    #[arg(short, long, value_name = "N", required_unless_present = "list_machines", value_parser = parse::tokens)]
    pub ctx: Option<u32>,

    /// Tokens in the cache when a token is decoded
    ///
    /// [default: the whole context]
    #[arg(long, value_name = "N", value_parser = parse::tokens)]
    pub depth: Option<u32>,

    /// Sequences that are decoded together, each with a context of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub streams: u32,

    /// Device memory that the KV cache may take
    ///
    /// [default: what is free beside the weights and working memory]
    #[arg(long, value_name = "MIB", value_parser = parse::mebibytes)]
    pub vram: Option<u64>,

    /// Cells of each layer in the window, instead of as many as fit
    #[arg(long, value_name = "N", conflicts_with = "vram", value_parser = parse::token_count)]
    pub window_cells: Option<u32>,

    /// Cells of a tile, a multiple of 32
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = parse::tile)]
    pub tile_cells: u32,

    /// Tokens of a prompt that are computed at a time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = parse::tokens)]
    pub ubatch: u32,

    /// How K is stored
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = PossibleValuesParser::new(WINDOW_TYPES))]
    pub cache_type_k: String,

    /// How V is stored
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = PossibleValuesParser::new(WINDOW_TYPES))]
    pub cache_type_v: String,

    /// How K of the tail is stored
    ///
    /// [default: as in the window]
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(WINDOW_TYPES))]
    pub tail_type_k: Option<String>,

    /// How V of the tail is stored
    ///
    /// [default: as in the window]
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(WINDOW_TYPES))]
    pub tail_type_v: Option<String>,

    /// Plan for this device of this machine, as `rolling-kv calibrate` measured it: a name such as CUDA0, or sim:link=6.4GB/s
    ///
    /// [default: the first device with memory of its own]
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["rates", "machine"], value_parser = DeviceArg::parse)]
    pub device: Option<DeviceArg>,

    /// Plan for the machine of a file that `rolling-kv calibrate --out` wrote, here or elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "machine")]
    pub rates: Option<PathBuf>,

    /// Plan for a machine by its published rates; --list-machines names them
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Take machines from this file, instead of those that are compiled in; --list-machines --toml prints those
    #[arg(long, value_name = "FILE")]
    pub machines: Option<PathBuf>,

    /// List the machines, with the rates that plans reckon with and where they were read, and do nothing else
    #[arg(long)]
    pub list_machines: bool,

    /// Print the machines as a file to copy and to change
    #[arg(long, requires = "list_machines")]
    pub toml: bool,

    /// Write one JSON object instead of text
    #[arg(long)]
    pub json: bool,

    /// Draw the time of a token over the depth, engine by engine, into this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}
