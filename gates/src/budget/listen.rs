//! What a model says of one question with its cache in a given form.

use rolling_kv::{AddSpecial, ContextParams, Model, Order, Residency, RollingKv};
use serde::{Deserialize, Serialize};

use crate::error::GateError;
use crate::metrics::log_prob;
use crate::niah::{Counted, answer_tokens};
use crate::niah_reader::Reader;
use crate::ruler::Sample;

/// Cells of a tile.
pub const TILE: u32 = 128;
/// Tokens that are read at once; after each part logits are compared. A local layer keeps rows for as many.
pub const PART: u32 = 64;

/// What was heard, beside the logits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// RULER's score of the answer, from 0 to 1.
    pub score: f64,
    /// Log-probability of the right answer, in nats.
    pub log_prob: f64,
    /// Layers that were local.
    pub local_layers: usize,
    /// K and V of the local layers in device memory, in bytes.
    pub local_bytes: u64,
    /// What these layers take when they keep every token.
    pub whole_bytes: u64,
    /// Tiles that local layers read from a tail.
    pub local_tiles_tail: u64,
    /// Tiles that the other layers did.
    pub tiles_tail: u64,
}

/// Reads the question, the right answer, and lets the model answer. The logits are those after each part of the question and each
/// token of the right answer.
pub fn listen(
    model: &Model,
    sample: &Sample,
    n_ctx: u32,
    threads: u32,
    spill: RollingKv,
) -> Result<(Vec<f32>, Heard), GateError> {
    let params = ContextParams::new(n_ctx)
        .n_batch(PART)
        .n_ubatch(PART)
        .threads(threads)
        .rolling_kv(spill.order(Order::Tiled).tile_cells(TILE));
    let mut context = model.context(&params)?;
    let counted = Counted(model);
    let prompt = counted.tokens(&sample.prompt, AddSpecial::Auto)?;
    let mut reader = Reader::new(&mut context);
    let mut logits = Vec::new();
    for part in prompt.chunks(PART as usize) {
        reader.read(part)?;
        logits.extend_from_slice(reader.last());
    }
    let after_prompt = reader.last().to_vec();
    let right = format!(" {}", sample.answers.join(", "));
    let mut sum = 0.0;
    // No more than a batch can be taken back.
    let right = counted.tokens(&right, AddSpecial::No)?;
    for token in right.into_iter().take(PART as usize) {
        sum += log_prob(reader.last(), token);
        reader.read(&[token])?;
        logits.extend_from_slice(reader.last());
    }
    reader.back_to(prompt.len() as i32, after_prompt)?;
    let answer = reader.generate(model, answer_tokens(sample.task) as usize)?;
    let heard = heard(sample.score(&answer), sum, &context.residency());
    Ok((logits, heard))
}

fn heard(score: f64, log_prob: f64, residency: &Residency) -> Heard {
    let local = || residency.layers.iter().filter(|one| one.local.is_some());
    let others = residency.layers.iter().filter(|one| one.local.is_none());
    Heard {
        score,
        log_prob,
        local_layers: local().count(),
        local_bytes: local().map(|one| one.device_bytes + one.host_bytes).sum(),
        whole_bytes: local()
            .map(|one| one.device_bytes / u64::from(one.window_cells) * u64::from(one.kv_size))
            .sum(),
        local_tiles_tail: local().map(|one| one.counters.tiles_tail).sum(),
        tiles_tail: others.map(|one| one.counters.tiles_tail).sum(),
    }
}
