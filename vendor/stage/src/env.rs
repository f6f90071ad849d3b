//! A snapshot of the environment, so that nothing below reads a variable on its own and tests need not set any.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variables that change what is built. A build script tells cargo to run it again when one changes.
pub const WATCHED: &[&str] = &[
    "ROLLING_KV_LLAMA_DIR",
    "ROLLING_KV_CACHE_DIR",
    "ROLLING_KV_LINK",
    "ROLLING_KV_CUDA_ARCH",
    "CMAKE",
    "NINJA",
    "LIBCLANG_PATH",
    "CC",
    "CXX",
    "CUDACXX",
];

/// Environment variables by name.
#[derive(Debug, Clone, Default)]
pub struct Env(BTreeMap<String, OsString>);

impl Env {
    /// The variables of this process; those whose name is not Unicode are left out.
    #[must_use]
    pub fn from_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
        )
    }

    /// Exactly these variables.
    pub fn from_pairs<N: Into<String>, V: Into<OsString>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// The value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(name)
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The value as a path.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// The value as text; `None` also where it is not Unicode.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// The first file called `program` in a folder of `PATH`.
    #[must_use]
    pub fn which(&self, program: &str) -> Option<PathBuf> {
        let path = self.get("PATH")?;
        std::env::split_paths(path)
            .map(|dir| dir.join(program))
            .find(|file| is_program(file))
    }
}

/// Whether `file` is a file that may be run.
#[must_use]
pub fn is_program(file: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.metadata()
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    {
        file.is_file()
    }
}
