//! `cargo xtask cuda setup`: the CUDA toolkit, from the system where it works, else as wheels under the target folder.

use std::fs;
use std::path::{Path, PathBuf};

use rolling_kv_stage::cuda::Toolkit;
use rolling_kv_stage::env::Env;
use rolling_kv_stage::tools::Search;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::wheels::{self, CUBLAS, CUDA_COMPILER};

/// The oldest release that knows every architecture of the default list and C++17.
const RELEASE_LEAST: (u32, u32) = (12, 0);

/// How much of the toolkit is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// What compiles kernels.
    Compiler,
    /// That, and what the module is linked with.
    All,
}

/// A kernel and a function of the host: they need the device compiler, the assembler and a host compiler that fits.
const TRIAL: &str = "#include <cuda_fp16.h>\n\
    __global__ void twice(half * x) { x[threadIdx.x] += x[threadIdx.x]; }\n\
    void run(half * x) { twice<<<1, 32>>>(x); }\n";

/// Makes sure that the toolkit is there; what is missing is installed, and tried.
pub fn ensure(place: &Place, parts: Parts) -> Result<Toolkit> {
    if let Some(toolkit) = present(place, parts)? {
        return Ok(toolkit);
    }
    fetch(place, parts)?;
    let toolkit = Toolkit::find(&search(place))?;
    toolkit.link_names()?;
    attempt(&toolkit)?;
    Ok(toolkit)
}

/// The toolkit, if there is one that serves. One of the person's own that lacks a part is an error, and so is a `CUDACXX` that
/// names none.
pub fn present(place: &Place, parts: Parts) -> Result<Option<Toolkit>> {
    let search = search(place);
    let toolkit = match Toolkit::find(&search) {
        Ok(toolkit) => toolkit,
        Err(error) if search.env.get("CUDACXX").is_some() => return Err(error.into()),
        Err(_) => return Ok(None),
    };
    let ours = is_below(&toolkit, &folder(place));
    if !serves(&toolkit, parts) {
        let root = toolkit.root.clone();
        let part = if toolkit.include().is_none() {
            "cuda_runtime.h"
        } else {
            "cuBLAS"
        };
        return match ours {
            true => Ok(None),
            false => Err(rolling_kv_stage::Error::CudaPart { root, part }.into()),
        };
    }
    if ours {
        toolkit.link_names()?;
    }
    Ok(Some(toolkit))
}

/// Installs the wheels, all at once: pip replaces the folder that they share.
pub fn fetch(place: &Place, parts: Parts) -> Result<()> {
    wheels::pip_works()?;
    let mut list = CUDA_COMPILER.to_vec();
    if parts == Parts::All {
        list.push(CUBLAS);
    }
    wheels::install(&list, &folder(place))
}

fn folder(place: &Place) -> PathBuf {
    place.tools().join("cuda")
}

fn search(place: &Place) -> Search {
    Search::new(Env::from_process(), &place.root, &place.target)
}

/// Runs `cuda setup` and prints what is used.
pub fn run(place: &Place) -> Result<()> {
    let toolkit = ensure(place, Parts::All)?;
    attempt(&toolkit)?;
    println!(
        "nvcc      {} ({})",
        toolkit.nvcc.display(),
        release_text(&toolkit)?
    );
    let shown = |dir: Option<PathBuf>| dir.unwrap_or_default().display().to_string();
    println!("headers   {}", shown(toolkit.include()));
    println!("libraries {}", shown(toolkit.library_dir()));
    println!("a kernel compiles; `cargo xtask cuda build` builds the module");
    Ok(())
}

fn serves(toolkit: &Toolkit, parts: Parts) -> bool {
    // An interrupted installation can leave an empty file.
    let whole = toolkit.nvcc.metadata().is_ok_and(|file| file.len() > 0);
    let compiles = whole && toolkit.include().is_some() && toolkit.library_dir().is_some();
    compiles && (parts == Parts::Compiler || toolkit.has_cublas())
}

fn is_below(toolkit: &Toolkit, folder: &Path) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    toolkit.nvcc.starts_with(folder)
}

/// Compiles a kernel, so that a compiler of the host that does not fit is found now and not after twenty minutes.
fn attempt(toolkit: &Toolkit) -> Result<()> {
    let text = release_text(toolkit)?;
    if release(&text).is_none_or(|found| found < RELEASE_LEAST) {
        let (major, minor) = RELEASE_LEAST;
        return Err(Error::wrong(
            format!(
                "{} is of {text}, and {major}.{minor} is the oldest that will do",
                toolkit.nvcc.display()
            ),
            "leave CUDACXX unset, take that nvcc off the PATH and run `cargo xtask cuda setup`, or install a newer toolkit",
        ));
    }
    let folder = tempfile::tempdir().map_err(Error::file("make", &std::env::temp_dir()))?;
    let source = folder.path().join("trial.cu");
    fs::write(&source, TRIAL).map_err(Error::file("write", &source))?;
    Run::new(&toolkit.nvcc)
        .args(["-std=c++17", "-arch=sm_90", "-c", "-o"])
        .arg(folder.path().join("trial.o"))
        .arg(&source)
        .next(
            "where nvcc calls the host's compiler unsupported, install one that it takes (for this toolkit g++ 15 or older; \
             Debian: apt install g++-14) and name it: NVCC_CCBIN=g++-14; then run the command again",
        )
        .quietly()?
        .success()
        .map(drop)
}

/// What nvcc says of its release.
fn release_text(toolkit: &Toolkit) -> Result<String> {
    let said = Run::new(&toolkit.nvcc)
        .arg("--version")
        .next("delete the folder that it lies in and run `cargo xtask cuda setup`")
        .quietly()?
        .success()?
        .text;
    let line = said.lines().find(|line| line.contains("release "));
    let text = line.and_then(|line| line.split(", ").find(|part| part.starts_with("release ")));
    Ok(text.unwrap_or("an unknown release").to_owned())
}

/// Major and minor number out of `release 13.0`.
fn release(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.strip_prefix("release ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_and_an_older_one_is_less() {
        assert_eq!(release("release 13.0"), Some((13, 0)));
        assert!(release("release 11.8").unwrap() < RELEASE_LEAST);
        assert_eq!(release("an unknown release"), None);
    }

    #[test]
    fn a_compiler_without_headers_or_without_cublas_serves_less() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("bin/nvcc", "");
        let toolkit = Toolkit::of(&dir.path().join("bin/nvcc"));
        file("include/cuda_runtime.h", "");
        file("lib/libcudart.so.13", "");
        assert!(!serves(&toolkit, Parts::Compiler), "an empty nvcc");
        file("bin/nvcc", "program");
        assert!(serves(&toolkit, Parts::Compiler));
        assert!(!serves(&toolkit, Parts::All));
        file("include/cublas_v2.h", "");
        file("lib/libcublas.so.13", "");
        assert!(serves(&toolkit, Parts::All));
    }

    #[test]
    fn a_toolkit_of_ours_is_told_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let nvcc = dir.path().join("cuda/nvidia/cu13/bin/nvcc");
        fs::create_dir_all(nvcc.parent().unwrap()).unwrap();
        fs::write(&nvcc, "").unwrap();
        let toolkit = Toolkit::of(&nvcc);
        assert!(is_below(&toolkit, &dir.path().join("cuda")));
        assert!(!is_below(&toolkit, &dir.path().join("other")));
    }
}
