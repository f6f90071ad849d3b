//! Compiles every CUDA file of ours for two cards, with every warning as an error and no spilled register.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rolling_kv_stage::Repo;

use super::compile::Compiler;
use super::ptxas::{self, Kernel};
use super::setup::{self, Parts};
use super::vendors;
use crate::digest;
use crate::error::{Error, Result};
use crate::native;
use crate::parallel;
use crate::place::Place;
use crate::report::{Counts, Outcome};

/// The cards: the least that has all that upstream's attention asks for at home, and the one that is lent to projects.
pub const CARDS: [u32; 2] = [86, 90];

/// What pip says where a file is not the one that was pinned: that is no want of a network.
const WRONG_HASH: &str = "DO NOT MATCH THE HASHES";

/// Runs the step; without a toolkit, and without a way to fetch one, it is skipped.
pub fn step(place: &Place) -> Result<Outcome> {
    if setup::present(place, Parts::Compiler)?.is_none()
        && let Err(error) = setup::fetch(place, Parts::Compiler)
    {
        return unfetched(error);
    }
    let toolkit = setup::ensure(place, Parts::Compiler)?;
    let root = native::staged_root(place)?;
    let sources = Repo::new(&place.root).kernels().join("cuda");
    let unmapped = vendors::unmapped(&sources, &root.join("ggml/src/ggml-cuda"))?;
    if !unmapped.is_empty() {
        return Err(Error::wrong(
            format!("not mapped for another runtime: {}", unmapped.join(", ")),
            "map them in kernels/cuda/rkv-cuda-vendors.h",
        ));
    }
    let scratch = place.work().join("cuda-kernels");
    fs::create_dir_all(&scratch).map_err(Error::file("make", &scratch))?;
    let files = listed(&sources, &root.join("rkv/cuda"))?;
    let compiler = Compiler::new(toolkit, &root, &scratch)?;
    let jobs: Vec<Job> = CARDS
        .iter()
        .flat_map(|&arch| files.iter().map(move |file| Job { file, arch }))
        .collect();
    unless_known(place, &compiler, &jobs, &scratch)
}

/// A file for a card.
struct Job<'a> {
    file: &'a Path,
    arch: u32,
}

impl Job<'_> {
    fn object(&self, scratch: &Path) -> PathBuf {
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        scratch.join(format!("{name}.sm_{}.o", self.arch))
    }
}

/// Compiles all jobs, unless they were compiled from the same files before.
fn unless_known(
    place: &Place,
    compiler: &Compiler,
    jobs: &[Job],
    scratch: &Path,
) -> Result<Outcome> {
    let commands: Vec<String> = jobs
        .iter()
        .map(|job| {
            compiler
                .arguments(job.file, job.arch, &job.object(scratch))
                .join(" ")
        })
        .collect();
    let tree = native::identity(place)?;
    let texts = commands.iter().map(String::as_str).chain([tree.as_str()]);
    let inputs = digest::of(texts, &[])?;
    let known = scratch.join("checked.txt");
    if fs::read_to_string(&known).is_ok_and(|checked| checked == inputs) {
        println!(
            "nothing changed since {} compilations were found without a warning",
            jobs.len()
        );
        return Ok(Outcome::Ran(Counts::new(jobs.len() as u64, 0, 0)));
    }
    let kernels = Mutex::new(Vec::new());
    let counts = parallel::each(jobs, |job| {
        let (counts, found) = one(compiler, job, scratch)?;
        kernels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(found);
        Ok(counts)
    })?;
    summarize(&kernels.into_inner().unwrap_or_else(PoisonError::into_inner));
    if counts.failed == 0 {
        fs::write(&known, inputs).map_err(Error::file("write", &known))?;
    }
    Ok(Outcome::Ran(counts))
}

/// One compilation: it passes without a warning and without a spill.
fn one(compiler: &Compiler, job: &Job, scratch: &Path) -> Result<(Counts, Vec<Kernel>)> {
    let ended = compiler.compile(job.file, job.arch, &job.object(scratch))?;
    if !ended.status.success() {
        println!(
            "NOT COMPILED: {} for sm_{}:\n{}",
            job.file.display(),
            job.arch,
            ended.text.trim_end()
        );
        return Ok((Counts::new(0, 1, 0), Vec::new()));
    }
    let kernels = ptxas::kernels(&ended.text);
    let spilled: Vec<&Kernel> = kernels.iter().filter(|kernel| kernel.spills()).collect();
    for kernel in &spilled {
        println!("SPILLS: {} for sm_{}: {kernel}", kernel.symbol, kernel.arch);
    }
    let counts = if spilled.is_empty() {
        Counts::ONE
    } else {
        Counts::new(0, 1, 0)
    };
    Ok((counts, kernels))
}

fn summarize(kernels: &[Kernel]) {
    for arch in CARDS {
        let of_card = kernels.iter().filter(|kernel| kernel.arch == arch);
        let most = of_card
            .clone()
            .map(|kernel| kernel.registers)
            .max()
            .unwrap_or_default();
        println!(
            "sm_{arch}: {} kernels, at most {most} registers",
            of_card.count()
        );
    }
}

/// The sources in `kernels/cuda`, where they lie in the staged tree.
pub fn listed(folder: &Path, staged: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let path = entry.map_err(Error::file("list", folder))?.path();
        let is_source = path
            .extension()
            .is_some_and(|end| end == "cu" || end == "cpp");
        if let Some(name) = path.file_name().filter(|_| is_source) {
            files.push(staged.join(name));
        }
    }
    files.sort();
    if files
        .iter()
        .any(|file| file.extension().is_some_and(|end| end == "cu"))
    {
        return Ok(files);
    }
    Err(Error::wrong(
        format!("{} holds no CUDA file", folder.display()),
        "this step must not pass without one",
    ))
}

/// Nothing is compiled where the compiler cannot be fetched. A file that is not the pinned one is a failure.
fn unfetched(error: Error) -> Result<Outcome> {
    let text = error.to_string();
    if text.contains(WRONG_HASH) {
        return Err(error);
    }
    let said = text.lines().find(|line| line.starts_with("ERROR: "));
    let why = said.or(text.lines().next()).unwrap_or_default();
    let why = format!("there is no CUDA compiler, and none could be fetched: {why}");
    Ok(Outcome::Skipped(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_fetched_is_skipped_and_what_is_not_the_pinned_file_fails() {
        let said = |text: &str| unfetched(Error::wrong(text, "try again"));
        let offline = said("`pip` ended with exit code 1.\nERROR: No matching distribution found");
        assert!(
            matches!(offline.unwrap(), Outcome::Skipped(why) if why.ends_with("distribution found"))
        );
        assert!(said("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES from the file").is_err());
    }

    #[test]
    fn sources_are_found_by_listing_and_none_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let staged = Path::new("/s/rkv/cuda");
        fs::write(dir.path().join("rkv-a.cpp"), "").unwrap();
        assert!(listed(dir.path(), staged).is_err());
        for name in ["rkv-b.cu", "rkv-c.cuh", "rkv-d.h"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = listed(dir.path(), staged).unwrap();
        assert_eq!(found, [staged.join("rkv-a.cpp"), staged.join("rkv-b.cu")]);
    }
}
