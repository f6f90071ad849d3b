//! `rolling-kv gate`: what proves, with numbers, that nothing changed but the placement.

mod args;
mod budget;
mod cliff;
mod error;
pub(crate) mod files;
mod logit_equiv;
mod niah;
mod parse;
mod shift;

pub use args::{GateArgs, Subject};
pub use error::GateCommandError;

use args::Gate;

/// Runs the gate and answers the exit code: 0 pass, 1 fail; what could not run is an error.
pub fn gate(args: &GateArgs) -> Result<u8, GateCommandError> {
    match &args.gate {
        Gate::LogitEquiv(options) => logit_equiv::run(options),
        Gate::Cliff(options) => cliff::run(options),
        Gate::Shift(options) => shift::run(options),
        Gate::Niah(options) => niah::run(options),
        Gate::Budget(options) => budget::run(options),
    }
}
