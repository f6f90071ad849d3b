//! `cargo xtask binaries`: the patched programs and all libraries of ours that they use, in one folder that can be moved.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::Variant;
use rolling_kv_stage::cuda::Archs;

use crate::cuda::build_beside;
use crate::elf;
use crate::error::{Error, Result};
use crate::model;
use crate::native::{self, PROGRAMS};
use crate::place::Place;
use crate::process::Run;
use crate::progress::Work;

/// The longest that a program may take to print its version or a few words.
const LIMIT: Duration = Duration::from_secs(120);

/// What the folder holds of CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuda {
    /// The cards that the module is for; without a list, the usual ones.
    pub archs: Option<Archs>,
    /// Whether NVIDIA's libraries are put beside it.
    pub libraries: bool,
}

/// How the names of NVIDIA's libraries begin.
const NVIDIA: [&str; 2] = ["libcudart.so", "libcublas"];

/// Where the folder is made unless the caller says otherwise.
pub fn default_out(place: &Place, cuda: Option<&Cuda>) -> PathBuf {
    let name = match cuda {
        None => "binaries",
        Some(_) => "binaries-cuda",
    };
    place.work().join(name)
}

/// Builds the programs, collects them in `out` and checks that a copy of that folder runs on its own.
pub fn run(place: &Place, out: &Path, cuda: Option<&Cuda>) -> Result<()> {
    let built = match cuda {
        None => native::build(place, Variant::Patched, PROGRAMS)?,
        Some(cuda) => build_beside(place, PROGRAMS, cuda.archs.clone())?,
    };
    let with_nvidia = cuda.is_some_and(|cuda| cuda.libraries);
    let files = collect(built.bin_dir(), PROGRAMS, out, with_nvidia)?;
    let mut bytes_total = 0;
    for name in &files {
        let bytes = size(&out.join(name))?;
        bytes_total += bytes;
        println!("{:>9.2} MB  {name}", bytes as f64 / 1e6);
    }
    println!(
        "{:>9.2} MB  in {} files in {}",
        bytes_total as f64 / 1e6,
        files.len(),
        out.display()
    );
    verify(out, &files)
}

/// Copies `programs`, the backend modules and whatever they need of `bin` to `out`. Names stay; links become files.
pub fn collect(
    bin: &Path,
    programs: &[&str],
    out: &Path,
    with_nvidia: bool,
) -> Result<Vec<String>> {
    let mut first: Vec<String> = programs.iter().map(|&name| name.to_owned()).collect();
    first.extend(modules(bin)?);
    let mut libraries = elf::closure(bin, &first)?;
    if !with_nvidia {
        libraries.retain(|name| !NVIDIA.iter().any(|prefix| name.starts_with(prefix)));
    }
    fs::create_dir_all(out).map_err(Error::file("make", out))?;
    let mut files: Vec<String> = first.into_iter().chain(libraries).collect();
    files.dedup();
    for name in &files {
        // A program that runs cannot be written to, but it can be replaced.
        let (part, place) = (out.join(format!(".{name}.part")), out.join(name));
        fs::copy(bin.join(name), &part).map_err(Error::file("copy", &bin.join(name)))?;
        fs::rename(&part, &place).map_err(Error::file("write", &place))?;
    }
    Ok(files)
}

/// The backend modules in `bin`: they are loaded by name at run time, so that no program names them as needed.
fn modules(bin: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(bin).map_err(Error::file("list", bin))? {
        let name = entry
            .map_err(Error::file("list", bin))?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if is_module(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn is_module(name: &str) -> bool {
    ["libggml-cpu", "libggml-cuda", "libggml-sim"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && name.ends_with(".so")
}

/// Runs the programs from a copy of `out` whose path has a space, without any search path for libraries.
fn verify(out: &Path, files: &[String]) -> Result<()> {
    let work = Work::start("running a copy of that folder");
    let temporary = tempfile::tempdir().map_err(Error::file("make", &std::env::temp_dir()))?;
    let copy = temporary.path().join("a copy");
    fs::create_dir(&copy).map_err(Error::file("make", &copy))?;
    for name in files {
        fs::copy(out.join(name), copy.join(name)).map_err(Error::file("copy", &out.join(name)))?;
    }
    let next =
        "run `ldd` on the program in a copy of the folder to see which library it does not find";
    let alone = |program: &str| {
        Run::new(copy.join(program))
            .env_remove("LD_LIBRARY_PATH")
            .dir("/")
            .limit(LIMIT)
            .next(next)
    };
    for program in PROGRAMS {
        // llama-bench has no --version; its help needs all libraries just the same.
        let flag = if *program == "llama-bench" {
            "--help"
        } else {
            "--version"
        };
        alone(program).arg(flag).quietly()?.success()?;
    }
    let tried = match model::cached() {
        Some(model) => {
            let run = alone("llama-completion")
                .args(["-no-cnv", "-n", "4", "-p", "One, two, three,", "-m"])
                .arg(model);
            run.quietly()?.success()?;
            "all programs start, and llama-completion completes a text"
        }
        None => {
            "all programs start (SKIP: completing a text: the model is not in the cache; `cargo xtask demo` fetches it)"
        }
    };
    work.done(tried);
    Ok(())
}

fn size(file: &Path) -> Result<u64> {
    fs::metadata(file)
        .map(|data| data.len())
        .map_err(Error::file("look at", file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::library;

    #[test]
    fn modules_are_told_from_libraries() {
        assert!(
            is_module("libggml-cpu.so")
                && is_module("libggml-cpu-zen4.so")
                && is_module("libggml-cuda.so")
        );
        assert!(
            !is_module("libggml-base.so.0")
                && !is_module("libggml.so")
                && !is_module("libggml-cpu.so.tmp")
        );
    }

    #[test]
    fn nvidias_libraries_are_collected_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, out) = (dir.path().join("bin"), dir.path().join("out"));
        fs::create_dir_all(&bin).unwrap();
        library(&bin, "libcudart.so.13", &[]);
        library(&bin, "libggml-cuda.so", &["libcudart.so.13"]);
        assert_eq!(
            collect(&bin, &[], &out, false).unwrap(),
            ["libggml-cuda.so"]
        );
        let all = collect(&bin, &[], &out, true).unwrap();
        assert_eq!(all, ["libggml-cuda.so", "libcudart.so.13"]);
    }

    #[test]
    fn collecting_turns_links_into_files_and_replaces_older_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, out) = (dir.path().join("bin"), dir.path().join("out"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&out).unwrap();
        let exe = std::env::current_exe().unwrap();
        fs::copy(&exe, bin.join("tool")).unwrap();
        fs::copy(&exe, bin.join("libggml-cpu.so.1")).unwrap();
        std::os::unix::fs::symlink("libggml-cpu.so.1", bin.join("libggml-cpu.so")).unwrap();
        fs::write(out.join("tool"), "older").unwrap();
        assert_eq!(
            collect(&bin, &["tool"], &out, false).unwrap(),
            ["tool", "libggml-cpu.so"]
        );
        assert!(
            out.join("libggml-cpu.so")
                .symlink_metadata()
                .unwrap()
                .is_file()
        );
        assert_eq!(size(&out.join("tool")).unwrap(), size(&exe).unwrap());
    }
}
