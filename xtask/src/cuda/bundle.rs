//! `cargo xtask cuda bundle`: what `gates/gpu.sh` needs, in one folder that can be moved to a machine with a card.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rolling_kv_stage::Variant;
use rolling_kv_stage::cuda::{Archs, Module};

use super::{build, check};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::{binaries, cargo, model, native, origin};

/// What the script runs beside our own program.
const PROGRAMS: [&str; 3] = ["llama-bench", "test-rkv-device", "test-backend-ops"];

/// Our own program.
const OURS: &str = "rolling-kv";

/// The script, in the repository and in the folder.
const SCRIPT: &str = "gates/gpu.sh";

/// What comes of a folder that is split.
const PARTS: &str = "parts";

const MIB: u64 = 1 << 20;

/// What the folder holds.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Contents {
    /// The cards that the module is for, as in `cargo xtask cuda build`
    #[arg(long, value_name = "LIST", value_parser = Archs::parse)]
    arch: Option<Archs>,
    /// Leave the CUDA module out: for a dry run
    #[arg(long)]
    without_module: bool,
    /// Leave NVIDIA's libraries out: the machine has those of the same release
    #[arg(long)]
    without_nvidia: bool,
    /// Also pack the folder, into parts of at most so many MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    split: Option<u64>,
}

impl Contents {
    /// With the module, and without NVIDIA's libraries.
    pub fn for_rehearsal(arch: Option<Archs>) -> Self {
        Self {
            arch,
            without_nvidia: true,
            ..Self::default()
        }
    }

    /// Without the CUDA module.
    pub fn for_dry_run() -> Self {
        Self {
            without_module: true,
            ..Self::default()
        }
    }
}

/// Builds what is not up to date, fills `dir` and says what it weighs.
pub fn run(place: &Place, dir: &Path, contents: &Contents) -> Result<()> {
    fill(place, dir, contents)?;
    let mut total = 0;
    for file in files(dir)? {
        let bytes = check::bytes(&file)?;
        total += bytes;
        let name = file.strip_prefix(dir).unwrap_or(&file);
        println!("{:>9.2} MB  {}", bytes as f64 / 1e6, name.display());
    }
    println!("{:>9.2} MB  in {}", total as f64 / 1e6, dir.display());
    if let Some(mib) = contents.split {
        let parts = dir.with_extension(PARTS);
        let written = pack(dir, &parts, mib * MIB)?;
        for part in &written {
            println!(
                "{:>9.2} MB  {}",
                check::bytes(part)? as f64 / 1e6,
                part.display()
            );
        }
        println!("there: cat {PARTS}/* | tar -xz, then ./gpu.sh");
    }
    Ok(())
}

/// Puts programs, libraries, model and script into `dir`.
pub fn fill(place: &Place, dir: &Path, contents: &Contents) -> Result<()> {
    let built = native::build(place, Variant::Patched, &PROGRAMS)?;
    let module = match contents.without_module {
        true => None,
        false => Some(build::module(place, contents.arch.clone())?),
    };
    let ours = cargo::program(place)?;
    let model = match model::cached() {
        Some(model) => model,
        None => model::fetch(place)?,
    };
    let bin = dir.join("bin");
    if bin.exists() {
        fs::remove_dir_all(&bin).map_err(Error::file("remove", &bin))?;
    }
    binaries::collect(built.bin_dir(), &PROGRAMS, &bin, false)?;
    if let Some(module) = module {
        add_module(&module, &bin, !contents.without_nvidia)?;
    }
    let program = bin.join(OURS);
    copy(&ours, &program)?;
    // Half of a program of the development profile and more is for debuggers.
    Run::new("strip")
        .arg(&program)
        .next("install binutils")
        .quietly()?
        .success()?;
    origin::beside(&program)?;
    copy(&model, &dir.join("model.gguf"))?;
    copy(&place.root.join(SCRIPT), &dir.join("gpu.sh"))
}

fn add_module(module: &Module, bin: &Path, with_nvidia: bool) -> Result<()> {
    copy_into(&module.file, bin)?;
    if with_nvidia {
        for library in module.toolkit.runtime() {
            copy_into(&library, bin)?;
        }
    }
    Ok(())
}

fn copy_into(file: &Path, folder: &Path) -> Result<()> {
    copy(file, &folder.join(file.file_name().unwrap_or_default()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .map_err(Error::file("copy", from))
}

/// Every file below `dir`, sorted.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let path = entry.map_err(Error::file("list", dir))?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Packs `dir` and cuts the archive into files of at most `most` bytes in `parts`.
fn pack(dir: &Path, parts: &Path, most: u64) -> Result<Vec<PathBuf>> {
    if parts.exists() {
        fs::remove_dir_all(parts).map_err(Error::file("remove", parts))?;
    }
    fs::create_dir_all(parts).map_err(Error::file("make", parts))?;
    let whole = parts.join("whole");
    let tar = Run::new("tar").arg("-C").arg(dir).arg("-czf").arg(&whole);
    tar.arg(".")
        .next("install tar and gzip")
        .quietly()?
        .success()?;
    let mut archive = File::open(&whole).map_err(Error::file("read", &whole))?;
    let mut left = check::bytes(&whole)?;
    let mut written = Vec::new();
    while left > 0 {
        let part = parts.join(format!("{:03}", written.len()));
        let mut file = File::create(&part).map_err(Error::file("write", &part))?;
        let copied = io::copy(&mut archive.by_ref().take(most), &mut file)
            .map_err(Error::file("write", &part))?;
        if copied == 0 {
            break;
        }
        left = left.saturating_sub(copied);
        written.push(part);
    }
    fs::remove_file(&whole).map_err(Error::file("remove", &whole))?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_packed_folder_are_small_and_give_it_back() {
        let temporary = tempfile::tempdir().unwrap();
        let (dir, parts) = (
            temporary.path().join("dir"),
            temporary.path().join("dir.parts"),
        );
        fs::create_dir_all(dir.join("bin")).unwrap();
        // Bytes that do not pack well.
        let mut state = 1_u64;
        let bytes: Vec<u8> = (0..20_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        fs::write(dir.join("bin/a"), &bytes).unwrap();
        let written = pack(&dir, &parts, 6000).unwrap();
        assert!(written.len() >= 3, "{written:?}");
        assert!(
            written
                .iter()
                .all(|part| check::bytes(part).unwrap() <= 6000)
        );
        let back = temporary.path().join("back");
        fs::create_dir_all(&back).unwrap();
        let unpack = Run::new("sh")
            .args(["-c", "cat ../dir.parts/* | tar -xz"])
            .dir(&back);
        unpack.quietly().unwrap().success().unwrap();
        assert_eq!(fs::read(back.join("bin/a")).unwrap(), bytes);
        assert_eq!(files(&back).unwrap(), [back.join("bin/a")]);
    }
}
