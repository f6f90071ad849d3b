//! The tiny models, made as tests want them: what cannot be made fails the test.

use rolling_kv::{Backend, Model, ModelParams, UserModel};

pub use rolling_kv_tiny::*;

/// Finishes a description with random weights.
pub fn finish(description: UserModel, backend: &Backend, seed: u64) -> Model {
    finish_with(description, backend, &ModelParams::default(), seed)
}

/// The same where the parameters say.
pub fn finish_with(
    description: UserModel,
    backend: &Backend,
    params: &ModelParams,
    seed: u64,
) -> Model {
    fill(description, backend, params, seed).expect("the description is complete")
}

/// Makes a tiny model.
pub type Maker = fn(&Backend) -> Model;

/// A tiny model for each way to keep what was read.
pub const KINDS: [(&str, Maker); 6] = [
    ("llama", model),
    ("sliding", sliding),
    ("recurrent", recurrent),
    ("hybrid", hybrid),
    ("many_positions", many_positions),
    ("latent", latent),
];

fn made(tiny: Tiny, backend: &Backend) -> Model {
    let made = tiny.load(backend, &ModelParams::default());
    made.expect("the description is complete")
}

pub fn model(backend: &Backend) -> Model {
    made(LLAMA, backend)
}

pub fn model_of(backend: &Backend, shape: &Shape) -> Model {
    finish(describe(shape), backend, shape.seed)
}

pub fn sliding(backend: &Backend) -> Model {
    made(GEMMA2, backend)
}

pub fn sharing_layers(backend: &Backend) -> Model {
    made(GEMMA4, backend)
}

pub fn recurrent(backend: &Backend) -> Model {
    made(MAMBA, backend)
}

pub fn hybrid(backend: &Backend) -> Model {
    made(JAMBA, backend)
}

pub fn many_positions(backend: &Backend) -> Model {
    made(QWEN2VL, backend)
}

pub fn latent(backend: &Backend) -> Model {
    made(DEEPSEEK2, backend)
}

pub fn encoder(backend: &Backend) -> Model {
    made(BERT, backend)
}

pub fn encoder_decoder(backend: &Backend) -> Model {
    made(T5, backend)
}
