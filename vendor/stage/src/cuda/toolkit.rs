//! The CUDA toolkit: where its compiler, its headers and its libraries are.

use crate::env::is_program;
use crate::error::{Error, IoContext, Result};
use crate::tools::Search;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where `cargo xtask cuda setup` puts nvcc, below a folder of tools.
const IN_TOOLS: &str = "cuda/nvidia/cu13/bin/nvcc";

/// Where NVIDIA's installers put nvcc.
const USUAL: &str = "/usr/local/cuda/bin/nvcc";

/// The libraries that the module needs when it runs, in the order in which they are loaded.
const LIBRARIES: [&str; 3] = ["cudart", "cublasLt", "cublas"];

/// A CUDA toolkit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    /// The compiler.
    pub nvcc: PathBuf,
    /// The folder above the one that nvcc lies in.
    pub root: PathBuf,
}

impl Toolkit {
    /// The toolkit that `CUDACXX` names; else the one under the target folder; else the one on the `PATH`; else the one in
    /// its usual place.
    ///
    /// # Errors
    /// [`Error::Cuda`] where there is none.
    pub fn find(search: &Search) -> Result<Self> {
        let usual = || Some(PathBuf::from(USUAL)).filter(|file| is_program(file));
        let found = match search.tool("CUDACXX", &[IN_TOOLS], "nvcc") {
            None if search.env.get("CUDACXX").is_none() => usual(),
            found => found,
        };
        let searched = || search.searched("CUDACXX");
        found
            .map(|nvcc| Self::of(&nvcc))
            .ok_or_else(|| Error::Cuda {
                searched: searched(),
            })
    }

    /// The toolkit around `nvcc`, which may be a link.
    #[must_use]
    pub fn of(nvcc: &Path) -> Self {
        let nvcc = nvcc.canonicalize().unwrap_or_else(|_| nvcc.to_owned());
        let root = nvcc.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
        Self { nvcc, root }
    }

    /// The folder of the headers; `None` where `cuda_runtime.h` is not found.
    #[must_use]
    pub fn include(&self) -> Option<PathBuf> {
        let mut dirs = self.dirs(&["include"]).into_iter();
        dirs.find(|dir| dir.join("cuda_runtime.h").is_file())
    }

    /// The folder of the libraries; `None` where libcudart is not found.
    #[must_use]
    pub fn library_dir(&self) -> Option<PathBuf> {
        let with_multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        let mut dirs = self.dirs(&["lib64", "lib", &with_multiarch]).into_iter();
        dirs.find(|dir| !versions(dir, "cudart").is_empty())
    }

    /// Whether cuBLAS is there, with its headers: compiling our kernels needs none, the module does.
    #[must_use]
    pub fn has_cublas(&self) -> bool {
        let header = self
            .include()
            .is_some_and(|dir| dir.join("cublas_v2.h").is_file());
        header
            && self
                .library_dir()
                .is_some_and(|dir| !versions(&dir, "cublas").is_empty())
    }

    /// The libraries that the module needs when it runs, each by the name that programs ask for, such as `libcudart.so.13`.
    #[must_use]
    pub fn runtime(&self) -> Vec<PathBuf> {
        let Some(dir) = self.library_dir() else {
            return Vec::new();
        };
        LIBRARIES
            .iter()
            .flat_map(|name| versions(&dir, name))
            .collect()
    }

    /// Gives the libraries of wheels the names that a linker and cmake ask for: wheels hold `lib/libcudart.so.13`, but neither
    /// `lib/libcudart.so` nor a folder `lib64`.
    ///
    /// # Errors
    /// A link that cannot be made.
    pub fn link_names(&self) -> Result<()> {
        for library in self.runtime() {
            link(
                &library.with_extension(""),
                library.file_name().unwrap_or_default(),
            )?;
        }
        link(&self.root.join("lib64"), "lib".as_ref())
    }

    /// `names` below the root, and below the folder that a toolkit has for this kind of machine.
    fn dirs(&self, names: &[&str]) -> Vec<PathBuf> {
        let machine = if cfg!(target_arch = "aarch64") {
            "sbsa"
        } else {
            std::env::consts::ARCH
        };
        let roots = [
            self.root.clone(),
            self.root.join(format!("targets/{machine}-linux")),
        ];
        let below = |root: &PathBuf| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
        roots.iter().flat_map(below).collect()
    }
}

/// Makes the link `place`, unless something is there.
fn link(place: &Path, target: &OsStr) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(target, place).at("make", place)?;
    Ok(())
}

/// The files `lib<name>.so.<number>` in `dir`.
fn versions(dir: &Path, name: &str) -> Vec<PathBuf> {
    let prefix = format!("lib{name}.so.");
    let is_major = |file: &str| {
        let number = file.strip_prefix(&prefix);
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
    };
    let items = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = items
        .filter(|item| item.file_name().to_str().is_some_and(is_major))
        .map(|item| item.path())
        .collect();
    files.sort();
    files
}
