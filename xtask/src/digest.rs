//! Whether anything changed since something was checked.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// A digest of `texts`, and of the names and contents of all files below `folders`.
pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>, folders: &[&Path]) -> Result<String> {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.as_bytes());
        hash.update([0]);
    }
    for folder in folders {
        for file in files(folder)? {
            hash.update(file.as_os_str().as_encoded_bytes());
            hash.update(fs::read(&file).map_err(Error::file("read", &file))?);
            hash.update([0]);
        }
    }
    let bytes = hash.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All files below `folder`, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))? {
            let path = entry.map_err(Error::file("list", &folder))?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
