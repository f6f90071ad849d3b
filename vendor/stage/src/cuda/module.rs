//! Building the CUDA module: in a build folder of its own over the staged tree, so that of the rest only ggml-base is compiled.

use super::{Archs, Toolkit};
use crate::error::Result;
use crate::native::Native;
use crate::options;
use crate::staged::Staged;
use crate::tools::Toolchain;
use std::path::{Path, PathBuf};

/// Name of the module's target in upstream's cmake files.
const TARGET: &str = "ggml-cuda";

/// A CUDA module that was built.
#[derive(Debug, Clone)]
pub struct Module {
    /// The library.
    pub file: PathBuf,
    /// cmake's build folder.
    pub build: PathBuf,
    /// The log of the build.
    pub log: PathBuf,
    /// What it was built for.
    pub archs: Archs,
    /// What it was built with.
    pub toolkit: Toolkit,
    /// What it was built from: the text that it carries.
    pub stamp: String,
}

impl Module {
    /// The ggml-base that was built with it.
    #[must_use]
    pub fn base(&self) -> PathBuf {
        self.bin().join("libggml-base.so")
    }

    fn bin(&self) -> &Path {
        self.file.parent().unwrap_or(&self.file)
    }
}

impl Staged {
    /// Builds the CUDA module and nothing that it does not need.
    ///
    /// # Errors
    /// [`crate::Error::Cuda`], [`crate::Error::CudaPart`] and [`crate::Error::Tool`] for what is missing;
    /// [`crate::Error::Command`] with the last lines of the log.
    pub fn compile_cuda(&self) -> Result<Module> {
        let plan = self.plan();
        let (archs, toolkit) = (plan.archs()?, plan.toolkit()?);
        let tools = Toolchain::find(&plan.search)?;
        let native = self.cuda(&tools, &archs, &toolkit)?;
        native.build(&tools, &[TARGET], &plan.reporter)?;
        Ok(Module {
            file: native.build.join("bin").join(format!("lib{TARGET}.so")),
            build: native.build,
            log: native.log,
            archs,
            toolkit,
            stamp: self.text().to_owned(),
        })
    }

    /// Writes the build files of the CUDA module, `compile_commands.json` among them, and answers their folder.
    ///
    /// # Errors
    /// As [`Staged::compile_cuda`].
    pub fn configure_cuda(&self) -> Result<PathBuf> {
        let plan = self.plan();
        let tools = Toolchain::find(&plan.search)?;
        Ok(self.cuda(&tools, &plan.archs()?, &plan.toolkit()?)?.build)
    }

    /// The module's build, configured.
    fn cuda(&self, tools: &Toolchain, archs: &Archs, toolkit: &Toolkit) -> Result<Native> {
        let plan = self.plan();
        let log = self.fresh_log("build-cuda.log")?;
        let native = Native {
            // One for each list of cards, so that asking for another one does not throw an hour away.
            build: self.dir().join(format!("build-cuda-{}", archs.name())),
            options: options::cuda(&plan.upstream, archs),
            nvcc: Some(toolkit.nvcc.clone()),
            ..self.native(&log)
        };
        native.configure(tools, &plan.reporter)?;
        Ok(native)
    }
}
