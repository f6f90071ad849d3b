//! Hashes of files and of whole trees.

use crate::error::{Error, IoContext, Result};
use crate::walk;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

/// SHA-256 of a tree as 64 hex digits: of the lines `<sha256 of the content>  <path>`, sorted by path, that
/// `sha256sum` prints for it. Times and permissions do not count.
///
/// # Errors
/// A file that cannot be read.
pub fn tree_sha256(root: &Path) -> Result<String> {
    let mut tree = TreeHasher::default();
    for entry in walk::files(root, &[])? {
        let content = std::fs::read(&entry.path).at("read", &entry.path)?;
        tree.add(&entry.relative, &content);
    }
    Ok(tree.finish())
}

/// [`tree_sha256`] for someone who reads the files anyway. Add them in the order of [`walk::files`].
#[derive(Default)]
pub struct TreeHasher(Sha256);

impl TreeHasher {
    /// Adds one file.
    pub fn add(&mut self, relative: &str, content: &[u8]) {
        self.0
            .update(format!("{}  {relative}\n", bytes_sha256(content)));
    }

    /// The hash of everything added.
    #[must_use]
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// SHA-256 of `bytes` as 64 hex digits.
#[must_use]
pub fn bytes_sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file as 64 hex digits, read in pieces.
///
/// # Errors
/// A file that cannot be read.
pub fn file_sha256(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path).at("open", path)?;
    let (mut hasher, mut piece) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).at("read", path)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&piece[..n]),
        }
    }
}

/// Says no when `found` is not the pinned hash of `path`.
///
/// # Errors
/// [`Error::Hash`].
pub fn require(path: &Path, expected: &str, found: String) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Hash {
        path: path.to_owned(),
        expected: expected.to_owned(),
        found,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
