//! The `rolling-kv` program: one file for each command, small helpers beside them.

mod args;
mod cache;
mod calibrate;
mod device;
mod digest;
mod doctor;
mod error;
mod exit;
mod fetch;
mod gate;
mod interrupt;
mod line;
mod logging;
mod models;
mod plan;
mod profile;
mod run;
mod source;
mod ui;
mod version;

use std::process::ExitCode;

use args::Command;
use error::CliError;
use line::Line;

fn main() -> ExitCode {
    let ended = line::read(std::env::args_os()).map_err(CliError::from);
    match ended.and_then(|line| dispatch(&line)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            ui::note(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(line: &Line) -> Result<u8, CliError> {
    logging::start(line.cli.verbose);
    match &line.cli.command {
        Command::Run(args) => Ok(run::run(args)?),
        Command::Doctor(args) => Ok(doctor::doctor(args)),
        Command::Gate(args) => Ok(gate::gate(args, &line.asked)?),
        Command::Profile(args) => Ok(profile::profile(args, &line.asked)?),
        Command::Calibrate(args) => Ok(calibrate::calibrate(args)?),
        Command::Plan(args) => Ok(plan::plan(args)?),
        Command::Fetch(args) => Ok(fetch::fetch(args).map(|()| exit::OK)?),
    }
}
