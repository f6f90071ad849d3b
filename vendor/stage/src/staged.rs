//! From a staged tree to libraries and programs.

use crate::cuda;
use crate::error::{IoContext, Result};
use crate::lock::Lock;
use crate::native::Native;
use crate::plan::Plan;
use crate::stamp::Stamp;
use crate::tools::Toolchain;
use crate::{bindings, options, stub};
use std::path::{Path, PathBuf};

/// The libraries that Rust code is linked with, in the order in which they need each other.
const LINKED: [&str; 3] = ["llama", "ggml", "ggml-base"];

/// Where libraries do not carry their absolute path themselves, which macOS's do.
const HAS_STUBS: bool = cfg!(target_os = "linux");

/// A staged tree. Holds the lock of its folder: drop it before running cargo on this project.
#[derive(Debug)]
pub struct Staged {
    plan: Plan,
    dir: PathBuf,
    root: PathBuf,
    stamp: Stamp,
    text: String,
    lock: Lock,
}

impl Staged {
    pub(crate) fn new(plan: Plan, dir: PathBuf, stamp: Stamp, text: String, lock: Lock) -> Self {
        let root = dir.join(crate::tree::DIR);
        Self {
            plan,
            dir,
            root,
            stamp,
            text,
            lock,
        }
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the tree was made of.
    #[must_use]
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// What the libraries say that they were built from: the stamp's text and, in a patched tree, a hash of the kernels.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// An empty log in the tree's folder.
    pub(crate) fn fresh_log(&self, name: &str) -> Result<PathBuf> {
        let log = self.dir.join(name);
        std::fs::write(&log, "").at("write", &log)?;
        Ok(log)
    }

    /// The build of the CPU's part.
    pub(crate) fn native(&self, log: &Path) -> Native {
        let jobs = self.plan.env.text("NUM_JOBS");
        Native {
            source: self.root.clone(),
            build: self.dir.join("build"),
            log: log.to_owned(),
            options: Vec::new(),
            tree: self.stamp.id(),
            nvcc: None,
            jobs: jobs.and_then(|jobs| jobs.parse().ok()),
        }
    }

    /// Builds `targets` of upstream's cmake files, and the libraries that Rust code is linked with; none of `targets` means
    /// only those. With the feature, the CUDA module as well.
    ///
    /// # Errors
    /// [`crate::Error::Tool`] for what is missing, [`crate::Error::Command`] with the last lines of the log.
    pub fn compile(&self, targets: &[&str]) -> Result<Built> {
        let plan = &self.plan;
        let tools = Toolchain::find(&plan.search)?;
        let log = self.fresh_log("build.log")?;
        let native = Native {
            options: options::cpu(&plan.repo, &plan.upstream, plan.variant)?,
            ..self.native(&log)
        };
        native.configure(&tools, &plan.reporter)?;
        let further = targets
            .iter()
            .copied()
            .filter(|name| !LINKED.contains(name));
        let all: Vec<&str> = ["llama", "ggml-cpu"].into_iter().chain(further).collect();
        native.build(&tools, &all, &plan.reporter)?;
        let cpu = native.build.join("bin");
        let (bin, link) = if plan.cuda {
            let bin = self.dir.join("bin-cuda");
            cuda::lay_out(&cpu, &self.compile_cuda()?, &bin)?;
            (bin, self.dir.join("link-cuda"))
        } else {
            (cpu, self.dir.join("link"))
        };
        let built = Built {
            bin,
            link,
            root: self.root.clone(),
            stamp: self.stamp.clone(),
            plan: plan.clone(),
            tools,
        };
        if HAS_STUBS {
            for name in LINKED {
                stub::make(&built.tools, &built.bin, &built.link, name, &log)?;
            }
        }
        Ok(built)
    }

    /// Gives the lock back without building.
    pub fn release(self) -> PathBuf {
        drop(self.lock);
        self.root
    }
}

/// Libraries and programs.
#[derive(Debug, Clone)]
pub struct Built {
    bin: PathBuf,
    link: PathBuf,
    root: PathBuf,
    stamp: Stamp,
    plan: Plan,
    tools: Toolchain,
}

impl Built {
    /// The folder of the libraries, backend modules and programs.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        &self.bin
    }

    /// Writes the Rust declarations to `out`. See [`bindings::generate`] for its effect on the environment.
    ///
    /// # Errors
    /// [`Error::Bind`](crate::Error::Bind).
    pub fn bind(&self, out: &Path) -> Result<()> {
        bindings::generate(&self.tools, &self.root, out)
    }

    /// What cargo is told: how to link, and, for dependent packages, where things are.
    #[must_use]
    pub fn cargo_metadata(&self) -> Vec<String> {
        let origin = self.plan.env.text("ROLLING_KV_LINK") == Some("origin");
        let link = if origin || !HAS_STUBS {
            &self.bin
        } else {
            &self.link
        };
        let mut lines = vec![format!("rustc-link-search=native={}", link.display())];
        lines.extend(LINKED.map(|name| format!("rustc-link-lib=dylib={name}")));
        lines.push(format!("metadata=lib_dir={}", self.bin.display()));
        lines.push(format!(
            "metadata=include_dir={}",
            self.root.join("rkv/include").display()
        ));
        lines.push(format!(
            "rustc-env=ROLLING_KV_LIB_DIR={}",
            self.bin.display()
        ));
        lines.push(format!("rustc-env=ROLLING_KV_STAMP={}", self.stamp.text));
        lines
    }

    /// Prints [`Built::cargo_metadata`] as a build script does.
    pub fn print_cargo_metadata(&self) {
        for line in self.cargo_metadata() {
            println!("cargo::{line}");
        }
    }
}
