//! The options of `rolling-kv run`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use rolling_kv::TailEngine;

use super::parse;
use crate::device::SimSpec;

/// The options of `rolling-kv run`.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct RunArgs {
    /// Model file (.gguf), or `smollm2` after `rolling-kv fetch smollm2`
    #[arg(short, long, value_name = "MODEL")]
    pub model: PathBuf,

    #[command(flatten)]
    pub prompt: PromptArgs,

    /// Generate at most this many tokens
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 128, value_parser = parse::token_count)]
    pub tokens: u32,

    /// Put the prompt into the model's chat template, as a question of the user
    #[arg(long)]
    pub chat: bool,

    /// System message that goes before the question
    #[arg(
        long,
        value_name = "TEXT",
        requires = "chat",
        allow_hyphen_values = true
    )]
    pub system: Option<String>,

    /// Write one JSON object to standard output at the end, instead of the text as it comes
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub sampling: SamplingArgs,

    #[command(flatten)]
    pub context: ContextArgs,

    #[command(flatten)]
    pub cache: CacheArgs,
}

/// Where the prompt comes from: one of the two.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct PromptArgs {
    /// The prompt
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    /// Read the prompt from a file, or from standard input if FILE is `-`; one line feed at its end is dropped
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// How the next token is chosen.
#[derive(Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = parse::temperature)]
    pub temp: f32,

    /// Never choose a token that ends the text: go on until --tokens are there or the context is full
    #[arg(long)]
    pub ignore_eos: bool,

    /// Seed of the random choice; the timing line names the one that was used
    ///
    /// [default: a new one each time]
    #[arg(short, long, value_name = "S", value_parser = parse::seed)]
    pub seed: Option<u32>,

    /// Consider only the K likeliest tokens; 0 considers all
    #[arg(long, value_name = "K", default_value_t = 40, value_parser = parse::top_k)]
    pub top_k: u32,

    /// Consider only the likeliest tokens that together have probability P; 1 considers all
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = parse::share)]
    pub top_p: f32,

    /// Drop tokens less likely than P times the likeliest one; 0 drops none
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = parse::probability)]
    pub min_p: f32,

    /// Divide the score of tokens that were among the last 64 by R; 1 changes nothing
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = parse::penalty)]
    pub repeat_penalty: f32,
}

/// The size and the shape of the computation.
#[derive(Args)]
#[command(next_help_heading = "Context and speed")]
pub struct ContextArgs {
    /// Tokens of context, for prompt and answer together
    ///
    /// [default: what is needed, up to what the model was trained for]
    #[arg(short, long, value_name = "N", value_parser = parse::context)]
    pub ctx: Option<u32>,

    /// Tokens that one call may process
    #[arg(short, long, value_name = "N", default_value_t = 2048, value_parser = parse::tokens)]
    pub batch: u32,

    /// Tokens that are computed at a time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = parse::tokens)]
    pub ubatch: u32,

    /// CPU threads
    ///
    /// [default: one for each physical core that this process may use]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub threads: Option<u32>,

    /// Layers to put on the GPU, if this build and this machine have one
    ///
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = parse::layers)]
    pub gpu_layers: Option<u32>,

    /// Compute on a simulated device, such as sim:mem=512MiB,link=6.4GB/s; see docs/SIM.md
    #[arg(long, value_name = "sim:SPEC", value_parser = SimSpec::parse)]
    pub device: Option<SimSpec>,

    /// Type of the cached keys
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = PossibleValuesParser::new(CACHE_TYPES))]
    pub cache_type_k: String,

    /// Type of the cached values; a quantised one needs flash attention
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = PossibleValuesParser::new(CACHE_TYPES))]
    pub cache_type_v: String,

    /// Flash attention; auto: where the model and the device allow it
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = FlashAttn::Auto)]
    pub flash_attn: FlashAttn,
}

/// Where the KV cache lies. Without any of these it lies wholly in device memory, and attention is llama.cpp's own.
#[derive(Args)]
#[command(next_help_heading = "Where the KV cache lies")]
pub struct CacheArgs {
    /// Keep only the first N cells of each layer's cache in device memory, the others in host memory; attention stays exact
    ///
    /// N is rounded down to whole tiles; 0 puts every cell into host memory. `auto` keeps as many cells as the free device
    /// memory holds.
    #[arg(long, value_name = "N|auto", value_parser = parse::window)]
    pub window_cells: Option<WindowArg>,

    /// Keep as many cells in device memory as fit into this many MiB, over all layers
    #[arg(long, value_name = "MIB", value_parser = parse::mebibytes, conflicts_with = "window_cells")]
    pub vram_target_mib: Option<u64>,

    /// Layers whose cache stays wholly in device memory, such as 0-4,11
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse::layer_range)]
    pub resident_layers: Vec<RangeInclusive<u32>>,

    /// Order of attention; auto: llama.cpp's own while a layer fits its window; tiled: the same bits for every window
    ///
    /// [default: auto]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub order: Option<OrderArg>,

    /// Cells of a tile, a multiple of 32; the bits of order tiled belong to one size
    ///
    /// [default: 128]
    #[arg(long, value_name = "N", value_parser = parse::tile)]
    pub tile_cells: Option<u32>,

    /// When a device brings tiles to its memory: ahead of the layers that read them, or once the layer has begun
    ///
    /// [default: ring]
    #[arg(long, value_name = "SCHEDULE", value_enum)]
    pub schedule: Option<ScheduleArg>,

    /// Copies on their way or waiting on the device at a time
    ///
    /// [default: chosen from the free device memory and the measured link]
    #[arg(long, value_name = "N", value_parser = parse::slots)]
    pub ring_depth: Option<u32>,

    /// Cells that are brought to the device in one copy, rounded down to whole tiles
    ///
    /// [default: chosen from the free device memory and the measured link]
    #[arg(long, value_name = "N", value_parser = parse::tokens)]
    pub copy_cells: Option<u32>,

    /// Who attends to cells in host memory while the answer is generated: the device over its link, the host where they lie, or both
    ///
    /// [default: auto, which goes by what the steps show]
    #[arg(long, value_name = "ENGINE", value_enum)]
    pub tail_engine: Option<EngineArg>,

    /// Threads of the host that attend to cells in host memory
    ///
    /// [default: as many as --threads]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub tail_threads: Option<u32>,

    /// CHANGES WHAT THE MODEL SAYS: type of the keys in host memory, smaller than --cache-type-k
    ///
    /// [default: the one of --cache-type-k]
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(TAIL_TYPES))]
    pub tail_type_k: Option<String>,

    /// CHANGES WHAT THE MODEL SAYS: type of the values in host memory, smaller than --cache-type-v
    ///
    /// [default: the one of --cache-type-v]
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(TAIL_TYPES))]
    pub tail_type_v: Option<String>,

    /// CHANGES WHAT THE MODEL SAYS: let the layers that `gate budget` accepted see the first and the newest tokens only
    ///
    /// They keep nothing else and have no tail. FILE is what `gate budget --json` wrote for this model.
    #[arg(long, value_name = "FILE")]
    pub local_file: Option<PathBuf>,
}

impl CacheArgs {
    /// Whether any of them was given.
    pub fn given(&self) -> bool {
        self.window_cells.is_some()
            || self.vram_target_mib.is_some()
            || !self.resident_layers.is_empty()
            || self.order.is_some()
            || self.tile_cells.is_some()
            || self.schedule.is_some()
            || self.ring_depth.is_some()
            || self.copy_cells.is_some()
            || self.tail_engine.is_some()
            || self.tail_threads.is_some()
            || self.tail_type_k.is_some()
            || self.tail_type_v.is_some()
            || self.local_file.is_some()
    }
}

/// How many cells of a layer lie in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowArg {
    /// This many.
    Cells(u32),
    /// As many as the free device memory holds.
    Auto,
}

/// The order of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    Auto,
    Tiled,
}

/// When tiles are copied to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScheduleArg {
    Ring,
    Op,
}

/// Who attends to the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    Auto,
    Stream,
    Host,
    Hybrid,
}

impl From<EngineArg> for TailEngine {
    fn from(engine: EngineArg) -> Self {
        match engine {
            EngineArg::Auto => Self::Auto,
            EngineArg::Stream => Self::Stream,
            EngineArg::Host => Self::Host,
            EngineArg::Hybrid => Self::Hybrid,
        }
    }
}

/// The types that llama.cpp can keep keys and values in.
pub const CACHE_TYPES: [&str; 9] = [
    "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl",
];

/// Those that a tail may have.
pub const TAIL_TYPES: [&str; 8] = [
    "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl",
];

/// Whether flash attention is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlashAttn {
    Auto,
    On,
    Off,
}
