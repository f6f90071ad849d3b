//! `stamp.json`: what a staged tree was made of.

use crate::error::{Error, IoContext, Result};
use crate::series::Series;
use crate::source::{Origin, SourceTree};
use crate::upstream::Upstream;
use crate::{fsx, hash, walk};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the file, beside the staged tree.
pub const FILE: &str = "stamp.json";

/// Raised when staging itself changes, so that older trees are staged again.
const FORMAT: u32 = 1;

/// Everything that a staged tree depends on, except `kernels/`, which is kept up to date file by file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    format: u32,
    /// One line for people and for `rkv_build_stamp()`.
    pub text: String,
    /// Where upstream's tree lies.
    pub source: PathBuf,
    source_state: String,
    tree_sha256: Option<String>,
    patches_sha256: Option<String>,
}

impl Stamp {
    /// The stamp that a tree staged now would get. Looks at the times and sizes of upstream's files, not into them.
    ///
    /// # Errors
    /// A tree that cannot be listed.
    pub fn new(upstream: &Upstream, source: &SourceTree, series: Option<&Series>) -> Result<Self> {
        let patches_sha256 = series.map(Series::sha256);
        let patches = patches_sha256.as_deref().map_or("none", |hash| &hash[..16]);
        let text = match source.origin {
            Origin::Override => format!(
                "llama.cpp from {}, patches {patches}",
                source.path.display()
            ),
            Origin::Vendored | Origin::Cache => {
                format!("llama.cpp {}, patches {patches}", upstream.llama_cpp_commit)
            }
        };
        Ok(Self {
            format: FORMAT,
            text,
            source: source.path.clone(),
            source_state: state(&source.path, &upstream.exclude)?,
            tree_sha256: source.pinned(upstream).map(str::to_owned),
            patches_sha256,
        })
    }

    /// A hash over all of it.
    #[must_use]
    pub fn id(&self) -> String {
        hash::bytes_sha256(format!("{self:?}").as_bytes())
    }

    /// The stamp of the tree staged in `dir`; `None` where there is none or it cannot be read.
    #[must_use]
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(FILE)).ok()?).ok()
    }

    /// Writes the stamp beside the staged tree.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::Io {
            action: "write",
            path: path.clone(),
            cause: error.into(),
        })?;
        fsx::write_atomic(&path, &text)
    }

    /// Takes the stamp away before the tree beside it changes.
    ///
    /// # Errors
    /// A file that cannot be deleted.
    pub fn remove(dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.at("delete", &path),
        }
    }
}

/// Hash over names, sizes and times.
fn state(root: &Path, exclude: &[String]) -> Result<String> {
    let mut text = String::new();
    for entry in walk::files(root, exclude)? {
        let modified = entry.metadata.modified().at("look at", &entry.path)?;
        let nanoseconds = modified
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        text.push_str(&format!(
            "{} {} {nanoseconds}\n",
            entry.relative,
            entry.metadata.len()
        ));
    }
    Ok(hash::bytes_sha256(text.as_bytes()))
}
