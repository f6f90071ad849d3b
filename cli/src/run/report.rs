//! What `rolling-kv run` says at the end: the timing line and the JSON object.

use std::time::Duration;

use rolling_kv::{LayerResidency, Residency};
use serde::Serialize;

use super::staging::StagingJson;

/// Why the generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model gave a token that ends the text.
    EndOfText,
    /// As many tokens as `-n` allows.
    Length,
    /// The next token would not fit into the context.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads standard output any more.
    OutputClosed,
}

impl StopReason {
    fn words(self) -> &'static str {
        match self {
            Self::EndOfText => "end of text",
            Self::Length => "length (-n)",
            Self::ContextFull => "context full",
            Self::Interrupted => "interrupted",
            Self::OutputClosed => "output closed",
        }
    }
}

/// How long each part took, and for how many tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    pub load: Duration,
    pub prompt_tokens: usize,
    pub prompt: Duration,
    pub generated_tokens: usize,
    pub generate: Duration,
}

/// Tokens per second; 0 if there were none.
fn rate(tokens: usize, time: Duration) -> f64 {
    if tokens == 0 || time.is_zero() {
        0.0
    } else {
        tokens as f64 / time.as_secs_f64()
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl Timings {
    /// One line for people.
    pub fn line(&self, stop: StopReason, seed: u32) -> String {
        format!(
            "prompt: {} tokens, {:.1} t/s | generated: {} tokens, {:.1} t/s | load: {:.0} ms | seed: {seed} | stop: {}",
            self.prompt_tokens,
            rate(self.prompt_tokens, self.prompt),
            self.generated_tokens,
            rate(self.generated_tokens, self.generate),
            milliseconds(self.load),
            stop.words()
        )
    }

    fn json(&self) -> TimingsJson {
        TimingsJson {
            load_ms: milliseconds(self.load),
            prompt_ms: milliseconds(self.prompt),
            prompt_tokens_per_second: rate(self.prompt_tokens, self.prompt),
            generate_ms: milliseconds(self.generate),
            generated_tokens_per_second: rate(self.generated_tokens, self.generate),
        }
    }
}

#[derive(Serialize)]
struct TimingsJson {
    load_ms: f64,
    prompt_ms: f64,
    prompt_tokens_per_second: f64,
    generate_ms: f64,
    generated_tokens_per_second: f64,
}

/// The model that was run.
#[derive(Serialize)]
pub struct ModelJson {
    pub path: String,
    pub description: String,
    pub parameters: u64,
    pub bytes: u64,
    pub trained_context_tokens: u32,
}

/// The options that were in force, after defaults and rounding.
#[derive(Serialize)]
pub struct OptionsJson {
    pub tokens: u32,
    pub chat: bool,
    pub temp: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repeat_penalty: f32,
    pub ctx: u32,
    pub batch: u32,
    pub ubatch: u32,
    pub threads: u32,
    pub gpu_layers: Option<u32>,
    pub cache_type_k: String,
    pub cache_type_v: String,
    /// What `auto` became.
    pub flash_attn: bool,
}

/// Where the cache lay, and what attention did with it.
#[derive(Serialize)]
pub struct ResidencyJson {
    pub order: &'static str,
    pub tile_cells: u32,
    pub kv_cells: u32,
    /// Cells of the smallest and of the largest window; layers that see a part of the text only are left out.
    pub window_cells_min: u32,
    pub window_cells_max: u32,
    pub layers: usize,
    pub layers_with_tail: usize,
    /// Layers that see the first and the newest tokens only, by request; they change what the model says.
    pub layers_local: usize,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub tiled_nodes: u64,
    pub tiles_window: u64,
    pub tiles_tail: u64,
    pub partials_merged: u64,
    pub tail_bytes_read: u64,
    /// Of the tail's tiles, those that the host attended to for a device.
    pub tiles_host: u64,
    pub host_bytes_read: u64,
    /// Cells that moved to other positions: of windows, of tails by the host, and of tails by their device.
    pub moved_window: u64,
    pub moved_host: u64,
    pub moved_device: u64,
}

impl ResidencyJson {
    /// The sums and extremes over all layers.
    pub fn new(residency: &Residency) -> Self {
        let totals = residency.totals();
        let windows = || {
            let whole = |layer: &&LayerResidency| !layer.sliding && layer.local.is_none();
            let own = residency.layers.iter().filter(whole);
            own.map(|layer| layer.window_cells)
        };
        let tails = residency
            .layers
            .iter()
            .filter(|layer| layer.local.is_none() && layer.window_cells < layer.kv_size);
        Self {
            order: if residency.tiled { "tiled" } else { "auto" },
            tile_cells: residency.tile_cells,
            kv_cells: residency
                .layers
                .iter()
                .map(|layer| layer.kv_size)
                .max()
                .unwrap_or(0),
            window_cells_min: windows().min().unwrap_or(0),
            window_cells_max: windows().max().unwrap_or(0),
            layers: residency.layers.len(),
            layers_with_tail: tails.count(),
            layers_local: residency
                .layers
                .iter()
                .filter(|layer| layer.local.is_some())
                .count(),
            device_bytes: residency.device_bytes(),
            host_bytes: residency.host_bytes(),
            tiled_nodes: totals.nodes,
            tiles_window: totals.tiles_window,
            tiles_tail: totals.tiles_tail,
            partials_merged: totals.partials_merged,
            tail_bytes_read: totals.tail_bytes_read,
            tiles_host: totals.tiles_host,
            host_bytes_read: totals.host_bytes_read,
            moved_window: totals.moved_window,
            moved_host: totals.moved_host,
            moved_device: totals.moved_device,
        }
    }
}

/// Everything that is known when a run has ended.
pub struct Outcome {
    pub text: String,
    /// The generated tokens, in order.
    pub tokens: Vec<i32>,
    pub stop: StopReason,
    pub timings: Timings,
}

impl Outcome {
    /// Ctrl-C came while the model was loaded, which took `load` until then.
    pub fn interrupted_after(load: Duration) -> Self {
        let timings = Timings {
            load,
            ..Timings::default()
        };
        Self {
            text: String::new(),
            tokens: Vec::new(),
            stop: StopReason::Interrupted,
            timings,
        }
    }
}

/// The object that `--json` prints.
#[derive(Serialize)]
pub struct RunJson<'a> {
    text: &'a str,
    tokens: &'a [i32],
    prompt_tokens: usize,
    generated_tokens: usize,
    stop_reason: StopReason,
    pub seed: u32,
    timings: TimingsJson,
    /// Absent when the run was interrupted before the model was loaded.
    pub model: Option<ModelJson>,
    /// As `model`.
    pub options: Option<OptionsJson>,
    /// Absent when nothing was asked of the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residency: Option<ResidencyJson>,
    /// Absent where no device brings tiles to its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staging: Option<StagingJson>,
}

impl<'a> RunJson<'a> {
    /// What is known without a model.
    pub fn new(outcome: &'a Outcome, seed: u32) -> Self {
        Self {
            text: &outcome.text,
            tokens: &outcome.tokens,
            prompt_tokens: outcome.timings.prompt_tokens,
            generated_tokens: outcome.timings.generated_tokens,
            stop_reason: outcome.stop,
            seed,
            timings: outcome.timings.json(),
            model: None,
            options: None,
            residency: None,
            staging: None,
        }
    }

    /// The object as text. Every field has a form in JSON, so that the fallback is never taken.
    pub fn text(&self) -> String {
        serde_json::to_string(self)
            .unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timing_line_names_each_part() {
        let timings = Timings {
            load: Duration::from_millis(120),
            prompt_tokens: 10,
            prompt: Duration::from_millis(100),
            generated_tokens: 4,
            generate: Duration::from_secs(2),
        };
        let line = timings.line(StopReason::EndOfText, 7);
        assert_eq!(
            line,
            "prompt: 10 tokens, 100.0 t/s | generated: 4 tokens, 2.0 t/s | load: 120 ms | seed: 7 | stop: end of text"
        );
    }

    #[test]
    fn no_tokens_give_a_rate_of_zero_not_of_nan() {
        assert_eq!(rate(0, Duration::ZERO), 0.0);
        assert_eq!(rate(3, Duration::ZERO), 0.0);
    }
}
