//! What a model must be so that a gate can prove something with it.

use rolling_kv::{ContextParams, Model};

use crate::error::GateError;

/// Cells of the context that is looked at; llama.cpp makes none smaller.
const CELLS: u32 = 256;

/// The model continues a text, and keeps K and V of it that could lie in host memory.
pub fn check(model: &Model) -> Result<(), GateError> {
    if model.has_encoder() || !model.has_decoder() {
        return Err(GateError::NoDecoder);
    }
    let context = model.context(&ContextParams::new(CELLS));
    let residency = context.map_err(rolling_kv::Error::from)?.residency();
    if residency.layers.is_empty() {
        return Err(GateError::NoCache);
    }
    Ok(())
}

/// The model was trained for so many tokens; beyond them it reads nonsense. `option` is what the user may lower.
pub fn fits(model: &Model, what: &str, asked: u32, option: &'static str) -> Result<(), GateError> {
    let trained = model.n_ctx_train();
    // Some models have no such number.
    if trained == 0 || asked <= trained {
        return Ok(());
    }
    Err(GateError::OverContext {
        what: what.into(),
        asked,
        trained,
        option,
    })
}
