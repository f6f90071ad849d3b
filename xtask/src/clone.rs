//! The fresh-clone gate: a clone in a folder with a space, with a target folder of its own, builds offline and runs.

use std::fs;
use std::time::Instant;

use crate::cargo;
use crate::error::{Error, Result};
use crate::git;
use crate::place::Place;
use crate::process::Run;
use crate::report::{Counts, Outcome};
use crate::setup;

/// Clones the last commit, builds our program there in the release profile, and asks it what it finds.
pub fn run(place: &Place) -> Result<Outcome> {
    if let Some(why) = git::why_not_committed(place) {
        return Ok(Outcome::Skipped(why));
    }
    let dir = place.work().join("a fresh clone");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Error::file("remove", &dir))?;
    }
    Run::new("git")
        .args(["clone", "--quiet"])
        .arg(&place.root)
        .arg(&dir)
        .quietly()?
        .success()?;
    let tools = setup::ensure(place)?;
    let started = Instant::now();
    let build = cargo::command(place).args([
        "build",
        "--offline",
        "--release",
        "--package",
        "rolling-kv-cli",
    ]);
    // The tools of this checkout: the clone has none of its own.
    let build = build
        .env("CMAKE", &tools.cmake)
        .env("LIBCLANG_PATH", &tools.libclang)
        .dir(&dir);
    let build = tools
        .ninja
        .iter()
        .fold(build, |build, ninja| build.env("NINJA", ninja));
    build
        .env("CARGO_TARGET_DIR", dir.join("its target"))
        .shown()?
        .success()?;
    println!(
        "ok  a clone in {:?} builds offline in {:.0} s",
        dir.display().to_string(),
        started.elapsed().as_secs_f64()
    );
    let doctor = Run::new(dir.join("its target/release/rolling-kv"))
        .arg("doctor")
        .env_remove("LD_LIBRARY_PATH")
        .dir("/");
    doctor.quietly()?.success()?;
    println!("ok  its program runs `doctor` without a complaint");
    fs::remove_dir_all(&dir).map_err(Error::file("remove", &dir))?;
    Ok(Outcome::Ran(Counts::new(2, 0, 0)))
}
