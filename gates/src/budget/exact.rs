//! The exact lever, reckoned and measured: every split of the budget computes the same bits, and takes another time.

use rolling_kv::{Model, RollingKv, StateBlob, TailEngine, Token};
use serde::{Deserialize, Serialize};

use super::predict::{Machine, Tail};
use super::split::{Cache, Split};
use crate::decode_time::{self, Decoder, Measured, WARM_UP};
use crate::error::GateError;
use crate::store::Store;

/// Cells of a tile.
const TILE: u32 = 128;

/// The exact lever on a device behind a link.
#[derive(Debug, Clone)]
pub struct ExactLever {
    /// Tokens of context; a text fills all but the decoded ones.
    pub n_ctx: u32,
    /// Tokens decoded with each split.
    pub decoded: u32,
    /// Cells of a copy.
    pub copy_cells: u32,
    /// Bandwidth of the device's link, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Latency of the link, in seconds.
    pub link_latency_s: f64,
    /// Device memory for the KV cache, in bytes; `None`: half of what the whole cache takes.
    pub budget_bytes: Option<u64>,
    /// Seed of the built-in text.
    pub seed: u64,
}

/// One split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SplitResult {
    /// The split.
    pub split: Split,
    /// K and V in device memory, in bytes.
    pub device_bytes: u64,
    /// Bytes that a step brings to the device.
    pub tail_bytes: f64,
    /// A step as reckoned, in milliseconds.
    pub predicted_ms: f64,
    /// A step as measured, in milliseconds.
    pub measured_ms: f64,
    /// Whether every logit has the bits that it has with every cell on the device.
    pub bits_equal: bool,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ExactReport {
    /// What the whole cache takes, in bytes.
    pub cache_bytes: u64,
    /// Device memory that was to be kept to, in bytes.
    pub budget_bytes: u64,
    /// A step with every cell on the device, in milliseconds.
    pub compute_ms: f64,
    /// The splits; the first one keeps no layer resident.
    pub splits: Vec<SplitResult>,
    /// The one that is reckoned to be fastest; the first of several.
    pub chosen: usize,
}

/// A step with every cell on the device.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Whole {
    step_ms: f64,
    device_bytes: u64,
    digest: u64,
}

/// The text in a cache. Read when the first measurement wants it.
struct Text<'a> {
    decoder: Decoder<'a>,
    tokens: &'a [Token],
    decoded: usize,
    saved: Option<StateBlob>,
}

impl Text<'_> {
    fn measure(
        &mut self,
        spill: RollingKv,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<Measured, GateError> {
        let (prompt, decoded) = self.tokens.split_at(self.tokens.len() - self.decoded);
        let saved = match &mut self.saved {
            Some(saved) => saved,
            none => none.insert(
                self.decoder
                    .fill(prompt, |done| progress("reading the text", done))?,
            ),
        };
        self.decoder.measure(spill, saved, decoded)
    }
}

impl ExactLever {
    /// Measures every split that `store` does not know.
    ///
    /// # Errors
    /// When a run is not possible, or nothing was staged.
    pub(super) fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<ExactReport, GateError> {
        let tokens = decode_time::text(model, self.n_ctx, self.decoded, self.seed)?;
        let decoded = self.decoded as usize;
        let decoder = Decoder {
            model,
            n_ctx: self.n_ctx,
            copy_cells: self.copy_cells,
            threads: None,
            warm_up: WARM_UP,
        };
        let mut text = Text {
            decoder,
            tokens: &tokens,
            decoded,
            saved: None,
        };
        let whole = store.get("exact, whole", || {
            let found = text.measure(RollingKv::resident(), &mut progress)?;
            Ok(Whole {
                step_ms: found.step_ms,
                device_bytes: found.device_bytes,
                digest: found.digest,
            })
        })?;
        let budget = self.budget_bytes.unwrap_or(whole.device_bytes / 2);
        if budget >= whole.device_bytes {
            return Err(GateError::NothingSpills {
                window_cells: self.n_ctx,
                n_ctx: self.n_ctx,
            });
        }
        let cache = cache(model, self.n_ctx, whole.device_bytes)?;
        let live = (tokens.len() - decoded / 2) as u32;
        let splits = cache.splits(budget);
        let mut results: Vec<SplitResult> = Vec::new();
        for (at, &split) in splits.iter().enumerate() {
            let name = format!(
                "exact, {} resident layers, {} cells",
                split.resident_layers, split.window_cells
            );
            let result = store.get(&name, || {
                let measured = text.measure(spill(split), &mut progress)?;
                Ok(self.result(split, cache, &whole, &measured, live))
            })?;
            results.push(result);
            progress("decoding", (at + 1) as f64 / splits.len() as f64);
        }
        if results.iter().all(|result| result.tail_bytes == 0.0) {
            return Err(GateError::NotEngaged);
        }
        Ok(ExactReport {
            cache_bytes: whole.device_bytes,
            budget_bytes: budget,
            compute_ms: whole.step_ms,
            chosen: fastest(&results),
            splits: results,
        })
    }

    fn result(
        &self,
        split: Split,
        cache: Cache,
        whole: &Whole,
        measured: &Measured,
        live: u32,
    ) -> SplitResult {
        let machine = Machine {
            compute_ms: whole.step_ms,
            link_bytes_per_ms: self.link_bytes_per_s / 1e3,
            latency_ms: self.link_latency_s * 1e3,
            slots: measured.staging.depth as usize,
            copy_cells: self.copy_cells,
        };
        let tails: Vec<Tail> = (0..cache.layers)
            .map(|layer| Tail {
                cells: if layer < split.resident_layers {
                    0
                } else {
                    live.saturating_sub(split.window_cells)
                },
                cell_bytes: cache.cell_bytes as f64,
            })
            .collect();
        SplitResult {
            split,
            device_bytes: measured.device_bytes,
            tail_bytes: measured.bytes,
            predicted_ms: machine.step_ms(&tails),
            measured_ms: measured.step_ms,
            bits_equal: measured.digest == whole.digest,
        }
    }
}

/// The first of those that are reckoned to be fastest.
fn fastest(results: &[SplitResult]) -> usize {
    let faster = |best: usize, at: usize| {
        if results[at].predicted_ms < results[best].predicted_ms {
            at
        } else {
            best
        }
    };
    (0..results.len()).reduce(faster).unwrap_or(0)
}

/// The cache that is to be split: the layers that keep every token.
fn cache(model: &Model, n_ctx: u32, bytes: u64) -> Result<Cache, GateError> {
    let layers = super::splittable(model)?;
    let (layers, cells) = (layers.len() as u32, n_ctx.next_multiple_of(256));
    Ok(Cache {
        layers,
        cells,
        cell_bytes: bytes / (u64::from(layers) * u64::from(cells)).max(1),
        tile: TILE,
    })
}

/// The tail of a split goes over the link, which is what is reckoned.
fn spill(split: Split) -> RollingKv {
    let spill = RollingKv::window_cells(split.window_cells)
        .tile_cells(TILE)
        .tail_engine(TailEngine::Stream);
    match split.resident_layers.checked_sub(1) {
        Some(last) => spill.resident_layers(0..=last),
        None => spill,
    }
}

#[cfg(test)]
impl SplitResult {
    pub(crate) fn for_tests(predicted_ms: f64, measured_ms: f64) -> Self {
        Self {
            split: Split {
                resident_layers: 0,
                window_cells: 128,
            },
            device_bytes: 1,
            tail_bytes: 1.0,
            predicted_ms,
            measured_ms,
            bits_equal: true,
        }
    }
}

#[cfg(test)]
impl ExactReport {
    pub(crate) fn for_tests(splits: Vec<SplitResult>) -> Self {
        Self {
            cache_bytes: 200,
            budget_bytes: 100,
            compute_ms: 1.0,
            splits,
            chosen: 0,
        }
    }
}
