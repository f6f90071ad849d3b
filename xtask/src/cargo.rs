//! Running cargo on this workspace.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::counts::{CargoTests, Show};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::{Run, Stream};
use crate::report::Counts;

/// Cargo in the repository, without what cargo told us about ourselves.
pub fn command(place: &Place) -> Run {
    let own = [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
        "CARGO_PKG_AUTHORS",
    ];
    let run = Run::new(Place::cargo()).dir(&place.root);
    own.into_iter()
        .fold(run, |run, name| run.env_remove(name))
        .env("CARGO_TARGET_DIR", &place.target)
}

/// Runs cargo with its output shown; an exit code other than 0 is an error.
pub fn shown(place: &Place, args: &[&str]) -> Result<()> {
    command(place).args(args).shown()?.success().map(drop)
}

/// Builds our program and answers where it lies.
pub fn program(place: &Place) -> Result<PathBuf> {
    command(place)
        .args(["build", "--package", "rolling-kv-cli"])
        .attached()?;
    Ok(place.target.join("debug/rolling-kv"))
}

/// Runs `cargo test` with `args` and `env`. The closing line of each test binary is shown; the output of tests that passed is
/// not, except for what they skipped.
pub fn test(place: &Place, args: &[&str], env: &[(&str, &OsStr)]) -> Result<Counts> {
    let run = command(place)
        .arg("test")
        .args(args)
        .args(["--", "--show-output"]);
    let run = env
        .iter()
        .fold(run, |run, (name, value)| run.env(name, value));
    let mut tests = CargoTests::default();
    let ended = run.watched(|stream, line| match stream {
        Stream::Err => eprintln!("{line}"),
        Stream::Out if tests.line(line) == Show::Yes => println!("{line}"),
        Stream::Out => {}
    })?;
    match tests.finish() {
        Some(counts) if ended.status.success() || counts.failed > 0 => Ok(counts),
        Some(_) => Err(ended.failure()),
        None if ended.status.success() => Err(Error::wrong(
            "cargo test ran no test at all",
            "check its arguments above",
        )),
        None => Err(ended.failure()),
    }
}
