//! Twins on the simulated device and on the CPU.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rolling_kv::{Backend, Context, ContextParams, Model, ModelParams, Order, RollingKv};

use super::{logits_after, some_tokens, tiny};

pub const TILE: u32 = 32;

/// One test at a time. A fault would be seen by the others; and a context that another test makes writes to the device's tail memory, so
/// that what was copied ahead for any context is discarded, and its steps take longer.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same weights on the simulated device and on the CPU alone.
pub struct Twins {
    pub device: Model,
    pub cpu: Model,
}

impl Twins {
    pub fn new(backend: &Backend, shape: &tiny::Shape) -> Self {
        let make = |params: &ModelParams| {
            tiny::finish_with(tiny::describe(shape), backend, params, shape.seed)
        };
        Self {
            device: make(&ModelParams::default()),
            cpu: make(&ModelParams::default().devices(&[])),
        }
    }

    /// What the whole cache in the CPU's memory says.
    pub fn expected<T>(&self, params: &ContextParams, run: impl Fn(&mut Context<'_>) -> T) -> T {
        run(&mut context(&self.cpu, params, RollingKv::resident()))
    }
}

pub fn shape(n_layer: u32) -> tiny::Shape {
    tiny::Shape {
        n_layer,
        n_embd: 128,
        n_head: 4,
        n_head_kv: 2,
        ..tiny::Shape::default()
    }
}

pub fn context<'model>(
    model: &'model Model,
    params: &ContextParams,
    spill: RollingKv,
) -> Context<'model> {
    let spill = spill.order(Order::Tiled).tile_cells(TILE);
    model
        .context(&params.clone().rolling_kv(spill))
        .expect("the context is made")
}

/// Bits of the logits after a prompt that is longer than a ubatch, and after each of a few tokens more.
pub fn prompt_and_decode(context: &mut Context<'_>, seq: i32, tokens: usize) -> Vec<u32> {
    let tokens = some_tokens(tokens, 11);
    let (prompt, rest) = tokens.split_at(tokens.len() - 6);
    let mut logits = logits_after(context, seq, prompt);
    for token in rest {
        logits.extend(logits_after(context, seq, &[*token]));
    }
    bits(&logits)
}

pub fn bits(logits: &[f32]) -> Vec<u32> {
    assert!(logits.iter().all(|logit| logit.is_finite()));
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// After a prompt, batches of 1 to 20 tokens, as speculation makes them.
pub fn few_tokens_at_once(context: &mut Context<'_>) -> Vec<u32> {
    let mut logits = logits_after(context, 0, &some_tokens(120, 1));
    for count in 1..=20 {
        logits.extend(logits_after(context, 0, &some_tokens(count, count as u64)));
    }
    bits(&logits)
}

/// Three streams of 300, 20 and 90 tokens, for [`ContextParams`] that have three sequences, and then a few tokens of each in turns.
pub fn streams_of_different_lengths(context: &mut Context<'_>) -> Vec<u32> {
    let mut logits = Vec::new();
    for (seq, count) in [(0, 300), (1, 20), (2, 90)] {
        logits.extend(logits_after(context, seq, &some_tokens(count, 5)));
    }
    for token in some_tokens(8, 9) {
        for seq in 0..3 {
            logits.extend(logits_after(context, seq, &[token]));
        }
    }
    bits(&logits)
}

/// What [`prompt_and_decode`] says in each of two contexts, step by step in turns.
pub fn two_in_turns<'model>(
    left: &mut Context<'model>,
    right: &mut Context<'model>,
    tokens: usize,
) -> [Vec<u32>; 2] {
    let tokens = some_tokens(tokens, 11);
    let (prompt, rest) = tokens.split_at(tokens.len() - 6);
    let mut found = [Vec::new(), Vec::new()];
    for part in std::iter::once(prompt).chain(rest.chunks(1)) {
        for (context, found) in [&mut *left, &mut *right].into_iter().zip(&mut found) {
            found.extend(bits(&logits_after(context, 0, part)));
        }
    }
    found
}

/// The shape's model on the device, but for the feed-forward weights of every layer: each layer is a graph of its own there.
pub fn in_fragments(backend: &Backend, shape: &tiny::Shape) -> Model {
    let params = ModelParams::default().weights_on_host("ffn_");
    tiny::finish_with(tiny::describe(shape), backend, &params, shape.seed)
}

/// The shape's model with so many layers on the device, the others on the CPU.
pub fn with_layers(backend: &Backend, shape: &tiny::Shape, layers: u32) -> Model {
    let params = ModelParams::default().gpu_layers(layers);
    tiny::finish_with(tiny::describe(shape), backend, &params, shape.seed)
}
