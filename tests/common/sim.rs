//! Twins on the simulated device and on the CPU.

use rolling_kv::{Backend, Context, ContextParams, Model, ModelParams, Order, RollingKv};

use super::{logits_after, some_tokens, tiny};

pub const TILE: u32 = 32;

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
