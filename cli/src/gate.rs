//! `rolling-kv gate`: what proves, with numbers, that nothing changed but the placement.

mod args;
mod budget;
mod cliff;
mod engines;
mod engines_apart;
mod error;
pub(crate) mod harness;
mod logit_equiv;
mod niah;
mod parse;
mod plan;
mod shift;
pub(crate) mod spec_words;

pub use args::{GateArgs, Subject};
pub use error::GateCommandError;

use args::{Gate, RunArgs};
use rolling_kv_gates::{Spec, SpecError};

use crate::line::Asked;
use crate::{exit, ui};

/// Runs the gate and answers the exit code: 0 pass, 1 fail; what could not run is an error.
pub fn gate(args: &GateArgs, asked: &Asked) -> Result<u8, GateCommandError> {
    match &args.gate {
        Gate::LogitEquiv(options) => logit_equiv::run(options, asked),
        Gate::Cliff(options) => cliff::run(options, asked),
        Gate::Engines(options) => engines::run(options, asked),
        Gate::Shift(options) => shift::run(options, asked),
        Gate::Niah(options) => niah::run(options, asked),
        Gate::Budget(options) => budget::run(options, asked),
        Gate::Plan(options) => plan::run(options, asked),
        Gate::Run(options) => print(options),
    }
}

/// `gate run --print`. With a spec, `gate run` has become the gate that the spec names.
fn print(args: &RunArgs) -> Result<u8, GateCommandError> {
    let name = args.print.as_deref().unwrap_or_default();
    let text = Spec::text(name).ok_or_else(|| SpecError::NotBuiltIn { name: name.into() })?;
    ui::print(text.trim_end());
    Ok(exit::OK)
}
