//! `vendor/UPSTREAM.toml`: which llama.cpp this is.

use crate::error::{Error, IoContext, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A checkout of this project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    /// The folder that holds `patches/`, `kernels/` and `vendor/`.
    pub root: PathBuf,
}

impl Repo {
    /// The checkout at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder of the patches.
    #[must_use]
    pub fn patches(&self) -> PathBuf {
        self.root.join("patches")
    }

    /// The folder of what is compiled into the tree.
    #[must_use]
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// Where `cargo xtask vendor` puts the tree.
    #[must_use]
    pub fn vendored(&self) -> PathBuf {
        self.root.join("vendor/llama.cpp")
    }

    /// The file that [`Upstream::read`] reads.
    #[must_use]
    pub fn upstream_file(&self) -> PathBuf {
        self.root.join("vendor/UPSTREAM.toml")
    }
}

/// The pinned package and what is taken from it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Name of the PyPI package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// Name of its source archive.
    pub file: String,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// SHA-256 of the archive, 64 hex digits.
    pub sha256: String,
    /// Folder inside the archive, below its top folder, that holds the tree.
    pub subdir: String,
    /// Commit of llama.cpp, as it abbreviates it.
    pub llama_cpp_commit: String,
    /// Version that llama.cpp gives itself.
    pub llama_cpp_version: String,
    /// Build number that llama.cpp shows; 0 where the package does not say.
    #[serde(default)]
    pub llama_cpp_build: u32,
    /// Version that ggml gives itself.
    pub ggml_version: String,
    /// [`crate::hash::tree_sha256`] of the tree without what `exclude` leaves out.
    pub tree_sha256: String,
    /// Patterns of what is left out of the tree; see [`crate::glob::matches`].
    pub exclude: Vec<String>,
}

impl Upstream {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`Error::Upstream`] for a missing or unknown field and for a value that cannot be right.
    pub fn read(repo: &Repo) -> Result<Self> {
        let path = repo.upstream_file();
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        Self::parse(&path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::Upstream {
            path: path.to_owned(),
            reason,
        };
        let upstream: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        for (name, hash) in [
            ("sha256", &upstream.sha256),
            ("tree_sha256", &upstream.tree_sha256),
        ] {
            if hash.len() != 64 || !hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                return Err(wrong(format!(
                    "{name} must be 64 lower-case hex digits, not {hash:?}"
                )));
            }
        }
        if upstream.file.contains('/')
            || upstream
                .subdir
                .split('/')
                .any(|part| matches!(part, "" | "." | ".."))
        {
            return Err(wrong(
                "file and subdir must name something inside the package".to_owned(),
            ));
        }
        Ok(upstream)
    }

    /// The line of a requirements file that pins the archive for pip.
    #[must_use]
    pub fn requirement(&self) -> String {
        format!(
            "{}=={} --hash=sha256:{}\n",
            self.package, self.version, self.sha256
        )
    }

    /// Name and version, for messages.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.package, self.version)
    }

    /// Name of the folder that holds this tree in a user's cache.
    #[must_use]
    pub fn cache_key(&self) -> String {
        format!("llama.cpp-{}", &self.tree_sha256[..16])
    }

    /// The version as patch headers give it.
    #[must_use]
    pub fn base(&self) -> String {
        format!(
            "llama.cpp {} (v{})",
            self.llama_cpp_commit, self.llama_cpp_version
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        package = "p"
        version = "1"
        file = "p-1.tar.gz"
        bytes = 1
        sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        subdir = "vendor/llama.cpp"
        llama_cpp_commit = "abc"
        llama_cpp_version = "0.1.0"
        ggml_version = "0.1.0"
        tree_sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
        exclude = []
    "#;

    fn error(text: &str) -> String {
        Upstream::parse(Path::new("vendor/UPSTREAM.toml"), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn pin_is_read() {
        let upstream = Upstream::parse(Path::new("f"), GOOD).unwrap();
        assert_eq!(upstream.cache_key(), "llama.cpp-bbbbbbbbbbbbbbbb");
        assert!(
            upstream
                .requirement()
                .starts_with("p==1 --hash=sha256:aaaa")
        );
        assert_eq!(upstream.base(), "llama.cpp abc (v0.1.0)");
    }

    #[test]
    fn missing_hash_is_refused() {
        let text = GOOD.replace("bbbbbbbb", "");
        assert!(
            error(&text).contains("tree_sha256 must be 64 lower-case hex digits"),
            "{}",
            error(&text)
        );
    }

    #[test]
    fn unknown_field_is_refused() {
        assert!(error(&format!("{GOOD}\ntree_sha = \"\"")).contains("tree_sha"));
    }

    #[test]
    fn folder_outside_the_package_is_refused() {
        assert!(
            error(&GOOD.replace("vendor/llama.cpp\"", "../x\"")).contains("inside the package")
        );
    }
}
