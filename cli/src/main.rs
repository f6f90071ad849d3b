//! The `rolling-kv` program: one file for each command, small helpers beside them.

mod args;
mod cache;
mod device;
mod digest;
mod doctor;
mod error;
mod exit;
mod fetch;
mod gate;
mod interrupt;
mod logging;
mod models;
mod profile;
mod run;
mod source;
mod ui;
mod version;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::CliError;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.verbose);
    match dispatch(&cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            ui::note(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(command: &Command) -> Result<u8, CliError> {
    match command {
        Command::Run(args) => Ok(run::run(args)?),
        Command::Doctor(args) => Ok(doctor::doctor(args)),
        Command::Gate(args) => Ok(gate::gate(args)?),
        Command::Profile(args) => Ok(profile::profile(args)?),
        Command::Fetch(args) => Ok(fetch::fetch(args).map(|()| exit::OK)?),
    }
}
