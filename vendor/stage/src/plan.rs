//! The steps from a checkout of this project to libraries that can be linked.

use crate::cuda::{Archs, Toolkit};
use crate::env::{self, Env};
use crate::error::{Error, IoContext, Result};
use crate::event::{Event, Reporter};
use crate::lock::Lock;
use crate::overlay::Overlay;
use crate::series::Series;
use crate::source::{self, Fetch, SourceTree};
use crate::staged::Staged;
use crate::stamp::Stamp;
use crate::tools::Search;
use crate::upstream::{Repo, Upstream};
use crate::{hash, target, tree};
use std::path::{Path, PathBuf};

/// Which tree is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// With our patches and kernels.
    Patched,
    /// As upstream has it, to compare with. Its one CPU module has the instruction sets that the patched build would choose on
    /// this machine.
    Stock,
}

/// Folder of a target folder that holds our builds.
pub(crate) const DIR: &str = "rolling-kv";

/// What is to be built and where; nothing has been done yet.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) repo: Repo,
    pub(crate) upstream: Upstream,
    pub(crate) variant: Variant,
    pub(crate) cuda: bool,
    archs: Option<Archs>,
    fetch: Fetch,
    dir: PathBuf,
    pub(crate) env: Env,
    pub(crate) search: Search,
    pub(crate) reporter: Reporter,
    emit: bool,
}

impl Plan {
    /// For a build script: the package's folder, features and variables as cargo gives them. What takes long is announced as
    /// a cargo warning.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another target than this machine; [`Error::Upstream`].
    pub fn from_env() -> Result<Self> {
        let env = Env::from_process();
        let cargo = |name: &str| {
            let reason = "is not set; this is meant for a build script that cargo runs".to_owned();
            env.text(name).map(str::to_owned).ok_or(Error::Env {
                name: name.to_owned(),
                reason,
            })
        };
        let (host, triple) = (cargo("HOST")?, cargo("TARGET")?);
        if host != triple {
            return Err(Error::Unsupported {
                what: format!("building for {triple} on {host}"),
            });
        }
        let root = PathBuf::from(cargo("CARGO_MANIFEST_DIR")?);
        let target = target::from_out_dir(Path::new(&cargo("OUT_DIR")?), &root);
        let mut plan = Self::new(&root, &target, Variant::Patched, env)?;
        plan.cuda = plan.env.get("CARGO_FEATURE_CUDA").is_some();
        plan.emit = true;
        plan.reporter = Reporter::new(|event| {
            if let Event::FetchStarted { package, bytes } = event {
                println!(
                    "cargo::warning=no llama.cpp tree found: fetching {package} ({} MB) with pip",
                    bytes / 1_000_000
                );
            }
        });
        Ok(plan)
    }

    /// For the checkout at `root`, with cargo's target folder at `target`; no features.
    ///
    /// # Errors
    /// [`Error::Upstream`].
    pub fn for_repo(root: &Path, target: &Path, variant: Variant) -> Result<Self> {
        Self::new(root, target, variant, Env::from_process())
    }

    /// [`Plan::for_repo`] in another environment than that of this process.
    ///
    /// # Errors
    /// [`Error::Upstream`]; [`Error::Unsupported`] on Windows.
    pub fn new(root: &Path, target: &Path, variant: Variant, env: Env) -> Result<Self> {
        if cfg!(windows) {
            return Err(Error::Unsupported {
                what: "Windows".to_owned(),
            });
        }
        let repo = Repo::new(root);
        let target = std::path::absolute(target).at("look at", target)?;
        Ok(Self {
            upstream: Upstream::read(&repo)?,
            variant,
            cuda: false,
            archs: None,
            fetch: if env.text("CARGO_NET_OFFLINE") == Some("true") {
                Fetch::Never
            } else {
                Fetch::Allowed
            },
            dir: target.join(DIR),
            search: Search::new(env.clone(), root, &target),
            reporter: Reporter::default(),
            emit: false,
            repo,
            env,
        })
    }

    /// With the CUDA module as well.
    #[must_use]
    pub fn with_cuda(mut self, cuda: bool) -> Self {
        self.cuda = cuda;
        self
    }

    /// With a CUDA module for `archs`; by default `ROLLING_KV_CUDA_ARCH` says for which, else [`Archs::default`].
    #[must_use]
    pub fn with_archs(mut self, archs: Archs) -> Self {
        self.archs = Some(archs);
        self
    }

    /// What a CUDA module is built for.
    ///
    /// # Errors
    /// [`Error::CudaArchs`] where `ROLLING_KV_CUDA_ARCH` cannot be read.
    pub fn archs(&self) -> Result<Archs> {
        match (&self.archs, self.env.text("ROLLING_KV_CUDA_ARCH")) {
            (Some(archs), _) => Ok(archs.clone()),
            (None, Some(text)) => Archs::parse(text),
            (None, None) => Ok(Archs::default()),
        }
    }

    /// The toolkit that a CUDA module is built with.
    ///
    /// # Errors
    /// [`Error::Cuda`] where there is none; [`Error::CudaPart`] where it lacks a part.
    pub fn toolkit(&self) -> Result<Toolkit> {
        let toolkit = Toolkit::find(&self.search)?;
        if toolkit.has_cublas() {
            return Ok(toolkit);
        }
        let (root, part) = (toolkit.root, "cuBLAS");
        Err(Error::CudaPart { root, part })
    }

    /// Sends events to `reporter`.
    #[must_use]
    pub fn with_reporter(mut self, reporter: Reporter) -> Self {
        self.reporter = reporter;
        self
    }

    /// Whether the tree may be fetched; by default it may unless `CARGO_NET_OFFLINE` is `true`.
    #[must_use]
    pub fn with_fetch(mut self, fetch: Fetch) -> Self {
        self.fetch = fetch;
        self
    }

    /// Also looks for tools in `dir`, laid out as `cargo xtask setup` does it.
    #[must_use]
    pub fn with_tool_dir(mut self, dir: &Path) -> Self {
        self.search.tool_dirs.push(dir.to_owned());
        self
    }

    /// The folder of the staged tree, its build and its stamp.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        let mut name = "cpu".to_owned();
        if let Some(path) = self.env.get("ROLLING_KV_LLAMA_DIR") {
            name.push('-');
            name.push_str(&hash::bytes_sha256(path.as_encoded_bytes())[..8]);
        }
        if self.variant == Variant::Stock {
            name.push_str("-stock");
        }
        self.dir.join(name)
    }

    /// Finds, verifies, copies and patches the tree and lays `kernels/` over it; or, where that was done before with the same
    /// patches, brings only `kernels/` up to date. Waits for another process that is at it.
    ///
    /// # Errors
    /// Whatever is wrong with the tree, the patches or the overlay; what was staged before stays.
    pub fn stage(&self) -> Result<Staged> {
        self.print_watched();
        if self.cuda {
            // What is missing is said now, and not after the CPU's part was compiled.
            self.archs()?;
            self.toolkit()?;
        }
        let dir = self.dir();
        let lock = Lock::take(&dir, &self.reporter)?;
        tree::recover(&dir)?;
        let source = source::find_with(
            &self.repo,
            &self.upstream,
            self.fetch,
            &self.env,
            &self.reporter,
        )?;
        let series = match self.variant {
            Variant::Patched => Some(Series::read(&self.repo.patches())?),
            Variant::Stock => None,
        };
        let stamp = Stamp::new(&self.upstream, &source, series.as_ref())?;
        let kernels = self.repo.kernels();
        let overlay = series.as_ref().map(|_| Overlay {
            kernels: &kernels,
            stamp: &stamp.text,
        });
        let root = dir.join(tree::DIR);
        if Stamp::read(&dir).as_ref() != Some(&stamp) || !root.is_dir() {
            self.reporter.send(Event::Staging);
            let fresh = tree::prepare(&dir, &self.request(&source, series.as_ref(), overlay))?;
            Stamp::remove(&dir)?;
            fresh.swap()?;
            stamp.write(&dir)?;
        }
        let text = match overlay {
            Some(overlay) => overlay.sync(&root)?,
            None => stamp.text.clone(),
        };
        Ok(Staged::new(self.clone(), dir, stamp, text, lock))
    }

    fn request<'a>(
        &'a self,
        source: &'a SourceTree,
        series: Option<&'a Series>,
        overlay: Option<Overlay<'a>>,
    ) -> tree::Request<'a> {
        let tree_sha256 = source.pinned(&self.upstream);
        tree::Request {
            source: &source.path,
            exclude: &self.upstream.exclude,
            tree_sha256,
            series,
            overlay,
        }
    }

    /// Tells cargo what a build script depends on, first of all, so that it also holds where a later step fails.
    fn print_watched(&self) {
        if !self.emit {
            return;
        }
        let mut files = vec![
            self.repo.patches(),
            self.repo.kernels(),
            self.repo.upstream_file(),
        ];
        // Cargo runs a script again and again that watches a file which is not there.
        files
            .extend(Some(self.repo.vendored().join("CMakeLists.txt")).filter(|file| file.exists()));
        files.extend(self.env.path("ROLLING_KV_LLAMA_DIR"));
        for path in files {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        for name in env::WATCHED {
            println!("cargo::rerun-if-env-changed={name}");
        }
    }
}
