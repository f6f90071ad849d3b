//! One file of ours through nvcc, for one card, with every warning as an error.

use std::fs;
use std::path::{Path, PathBuf};

use rolling_kv_stage::cuda::Toolkit;

use crate::error::{Error, Result};
use crate::process::{Ended, Run};

/// What upstream's cmake files tell nvcc, as far as it concerns a file of ours.
const OPTIONS: [&str; 13] = [
    "-std=c++17",
    "-O3",
    "-use_fast_math",
    "-extended-lambda",
    "-DNDEBUG",
    "-DGGML_BACKEND_BUILD",
    "-DGGML_BACKEND_DL",
    "-DGGML_BACKEND_SHARED",
    "-DGGML_CUDA_NO_VMM",
    "-DGGML_CUDA_USE_GRAPHS",
    "-DGGML_SCHED_MAX_COPIES=4",
    "-DGGML_SHARED",
    "-D_GNU_SOURCE",
];

/// Where headers are, below the root of the staged tree.
const FOLDERS: [&str; 6] = [
    "ggml/include",
    "ggml/src",
    "ggml/src/ggml-cuda",
    "rkv/include",
    "rkv/src",
    "rkv/cuda",
];

/// Warnings as errors. Headers define functions that not every file uses, and nvcc gives unnamed namespaces a name, so that what
/// is missing a declaration is not asked.
const STRICT: [&str; 6] = [
    "-Werror",
    "all-warnings",
    "-Xcompiler",
    "-Wall,-Wextra,-Wcast-qual,-Wextra-semi,-Wno-unused-function,-fPIC",
    "-Xptxas",
    "-v",
];

/// What a cuBLAS that is not there is replaced by.
const STAND_IN: &str = include_str!("stand-in/cublas_v2.h");

/// A compiler and the tree that it reads.
pub struct Compiler {
    toolkit: Toolkit,
    root: PathBuf,
    /// Folders of headers that are not checked for warnings.
    system: Vec<PathBuf>,
}

impl Compiler {
    /// For the staged tree at `root`. Without cuBLAS its header is replaced by one in `scratch`.
    pub fn new(toolkit: Toolkit, root: &Path, scratch: &Path) -> Result<Self> {
        let mut system: Vec<PathBuf> = toolkit.include().into_iter().collect();
        if !toolkit.has_cublas() {
            let folder = scratch.join("stand-in");
            fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
            let file = folder.join("cublas_v2.h");
            fs::write(&file, STAND_IN).map_err(Error::file("write", &file))?;
            system.push(folder);
        }
        let root = root.to_owned();
        Ok(Self {
            toolkit,
            root,
            system,
        })
    }

    /// The command that compiles `file` for a card into `object`.
    pub fn arguments(&self, file: &Path, arch: u32, object: &Path) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        let mut arguments: Vec<String> = OPTIONS.iter().map(|&option| option.to_owned()).collect();
        arguments.extend(FOLDERS.map(|folder| format!("-I{}", shown(&self.root.join(folder)))));
        for folder in &self.system {
            arguments.extend(["-isystem".to_owned(), shown(folder)]);
        }
        arguments.extend(STRICT.map(str::to_owned));
        arguments.extend([
            format!("--generate-code=arch=compute_{arch},code=sm_{arch}"),
            "-c".to_owned(),
            shown(file),
            "-o".to_owned(),
            shown(object),
        ]);
        arguments
    }

    /// Compiles `file` for a card; what the compiler says, also where it refuses.
    pub fn compile(&self, file: &Path, arch: u32, object: &Path) -> Result<Ended> {
        Run::new(&self.toolkit.nvcc)
            .args(self.arguments(file, arch, object))
            .dir(&self.root)
            .next("run `cargo xtask cuda setup`, which tries the compiler")
            .quietly()
    }
}
