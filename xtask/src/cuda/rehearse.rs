//! `cargo xtask cuda rehearse`: the CUDA module's host side, on a runtime that computes nothing.
//!
//! Kernels do nothing there, so that no number of a model comes out; copies, streams, events, graphs and host functions are what they are on a
//! card. What can be seen is what the host asks for: that the ring, the host engine and captured graphs are engaged, that a step allocates nothing,
//! that every device has a ring of its own, and that a want of memory is an error.

mod checks;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::cuda::Archs;
use serde_json::Value;

use super::bundle::{self, Contents};
use crate::elf;
use crate::error::{Error, Result};
use crate::native;
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::report::{Counts, Outcome};

/// Where the runtime and cuBLAS lie in the repository, and what of them is compiled.
const SOURCES: &str = "xtask/src/cuda/rehearsal";
const RUNTIME: &[&str] = &["cudart.cpp", "streams.cpp"];
const CUBLAS: &[&str] = &["cublas.c"];

const LIMIT: Duration = Duration::from_secs(5 * 60);
const NEXT: &str =
    "read what the program said above; xtask/src/cuda/rehearsal is the runtime it ran on";

/// Tokens of a context.
const CTX: u32 = 2048;

/// Builds what is not up to date, and rehearses.
pub fn run(place: &Place, archs: Option<Archs>) -> Result<()> {
    let counts = counted(place, archs)?;
    println!("{counts}");
    match counts.failed {
        0 => Ok(()),
        _ => Err(Error::wrong("a rehearsal was wrong", NEXT)),
    }
}

/// Rehearses with a module that was built before.
pub fn step(place: &Place) -> Result<Outcome> {
    let staged = native::staged_root(place)?;
    match built(staged.parent().unwrap_or(&staged))? {
        Some(archs) => Ok(Outcome::Ran(counted(place, Some(archs))?)),
        None => Ok(Outcome::Skipped(
            "no CUDA module was built here: cargo xtask cuda build --arch 90".into(),
        )),
    }
}

/// The cards of the module in `dir` that takes the least to build again.
fn built(dir: &Path) -> Result<Option<Archs>> {
    let mut found: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let entry = entry.map_err(Error::file("list", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(cards) = name.strip_prefix("build-cuda-")
            && entry.path().join("bin/libggml-cuda.so").exists()
        {
            found.push(cards.replace('-', ","));
        }
    }
    found.sort_by_key(String::len);
    match found.first() {
        Some(cards) => Ok(Some(Archs::parse(cards)?)),
        None => Ok(None),
    }
}

/// Every run, and what was asked of the runtime in it.
fn counted(place: &Place, archs: Option<Archs>) -> Result<Counts> {
    let dir = place.work().join("rehearsal");
    bundle::fill(place, &dir, &Contents::for_rehearsal(archs))?;
    stand_ins(place, &dir)?;
    let stage = Stage { dir };
    let mut counts = Counts::default();
    for (what, check) in checks::ALL {
        match check(&stage) {
            Ok(said) => {
                println!("PASS {what}: {said}");
                counts += Counts::ONE;
            }
            Err(error) => {
                println!("FAIL {what}: {error}");
                counts += Counts::new(0, 1, 0);
            }
        }
    }
    Ok(counts)
}

/// A folder with the program, the module and the runtime.
struct Stage {
    dir: PathBuf,
}

/// What a run has left: the program's JSON, and what was asked of the runtime.
struct Seen {
    staging: Value,
    asked: Value,
}

impl Seen {
    fn staged(&self, key: &str) -> u64 {
        self.staging[key].as_u64().unwrap_or_default()
    }

    fn asked(&self, key: &str) -> u64 {
        self.asked[key].as_u64().unwrap_or_default()
    }
}

impl Stage {
    fn program(&self, tokens: u32, options: &[&str], env: &[(&str, &str)]) -> Result<Ended> {
        let report = self.dir.join("asked.json");
        let _ = fs::remove_file(&report);
        let mut run = Run::new(self.dir.join("bin/rolling-kv"))
            .args([
                "run",
                "--json",
                "--temp",
                "0",
                "--threads",
                "1",
                "--ignore-eos",
            ])
            .arg("-m")
            .arg(self.dir.join("model.gguf"))
            .arg("--file")
            .arg(self.prompt()?)
            .args(["--ctx", &CTX.to_string(), "-n", &tokens.to_string()])
            .args(options)
            .env_remove("LD_LIBRARY_PATH")
            .env("REHEARSAL_REPORT", &report)
            .limit(LIMIT)
            .next(NEXT);
        for (name, value) in env {
            run = run.env(name, value);
        }
        run.quietly()
    }

    /// A text of about 700 tokens.
    fn prompt(&self) -> Result<PathBuf> {
        let file = self.dir.join("prompt.txt");
        let text = "A line of the log says that all is well. ".repeat(70);
        fs::write(&file, text).map_err(Error::file("write", &file))?;
        Ok(file)
    }

    /// A run that has to succeed, and of which the runtime refused nothing.
    fn seen(&self, tokens: u32, options: &[&str], env: &[(&str, &str)]) -> Result<Seen> {
        let ended = self.program(tokens, options, env)?.success()?;
        let json = |bytes: &[u8]| {
            serde_json::from_slice::<Value>(bytes)
                .map_err(|error| Error::wrong(format!("what a run left is no JSON: {error}"), NEXT))
        };
        let report = self.dir.join("asked.json");
        let asked = json(&fs::read(&report).map_err(Error::file("read", &report))?)?;
        let refused = asked
            .as_object()
            .and_then(|all| all.keys().find(|key| key.starts_with("refused")).cloned());
        if let Some(refused) = refused {
            return Err(Error::wrong(format!("the runtime {refused}"), NEXT));
        }
        let staging = json(&ended.stdout)?["staging"].clone();
        Ok(Seen { staging, asked })
    }

    /// A run that has to fail in order, with this in what it says.
    fn refused(&self, options: &[&str], env: &[(&str, &str)], says: &str) -> Result<String> {
        let ended = self.program(4, options, env)?;
        checks::want(
            ended.status.code() == Some(2),
            &format!("it ended with {}, not with 2", ended.status),
        )?;
        checks::want(
            ended.text.contains(says),
            &format!("it did not say \"{says}\""),
        )?;
        Ok(format!("\"{says}\""))
    }
}

/// Compiles the runtime into the folder of the module, where the module looks for NVIDIA's.
fn stand_ins(place: &Place, dir: &Path) -> Result<()> {
    let toolkit = super::setup::ensure(place, super::setup::Parts::All)?;
    let include = toolkit
        .include()
        .ok_or_else(|| Error::wrong("the toolkit has no headers", NEXT))?;
    let sources = place.root.join(SOURCES);
    let needed = elf::needed(&dir.join("bin/libggml-cuda.so"))?;
    for name in needed.into_iter().filter(|name| name.starts_with("libcu")) {
        let (files, prefix, compiler) = match name.starts_with("libcudart") {
            true => (RUNTIME, "cuda*; __cuda", "c++"),
            false => (CUBLAS, "cublas", "cc"),
        };
        let map = dir.join(format!("{name}.map"));
        let versions = format!("{name} {{ global: {prefix}*; local: *; }};\n");
        fs::write(&map, versions).map_err(Error::file("write", &map))?;
        Run::new(compiler)
            .args([
                "-O1",
                "-shared",
                "-fPIC",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
                "-isystem",
            ])
            .arg(&include)
            .args(files.iter().map(|file| sources.join(file)))
            .arg(format!(
                "-Wl,-soname,{name},--version-script,{}",
                map.display()
            ))
            .arg("-o")
            .arg(dir.join("bin").join(&name))
            .quietly()?
            .success()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_for_the_fewest_cards_and_an_empty_folder_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("build-cuda-86/bin")).unwrap();
        fs::create_dir_all(dir.path().join("build")).unwrap();
        assert!(built(dir.path()).unwrap().is_none());
        for cards in ["80-86-89-90", "86-90"] {
            let bin = dir.path().join(format!("build-cuda-{cards}/bin"));
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("libggml-cuda.so"), "").unwrap();
        }
        let found = built(dir.path()).unwrap().unwrap();
        assert_eq!(found.list(), [86, 90]);
    }
}
