//! The files of a tree, in one fixed order.

use crate::error::{Error, IoContext, Result};
use crate::glob;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// One file of a tree.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Path from the tree's root, with `/` between its parts.
    pub relative: String,
    /// Where the file lies.
    pub path: PathBuf,
    /// Size and times; of the target where the entry is a link.
    pub metadata: Metadata,
}

/// Every file below `root` that no pattern of `exclude` matches, sorted by [`Entry::relative`] as bytes.
///
/// `.git`, cmake's build folders and the lock links of editors are left out, so that a tree can be used as it lies. A link to a file counts
/// as the file.
///
/// # Errors
/// A link to a folder, a dangling link, a device or an unreadable folder.
pub fn files(root: &Path, exclude: &[String]) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    visit(root, String::new(), exclude, &mut found)?;
    found.sort_by(|a, b| a.relative.as_bytes().cmp(b.relative.as_bytes()));
    Ok(found)
}

fn visit(dir: &Path, prefix: String, exclude: &[String], found: &mut Vec<Entry>) -> Result<()> {
    for item in std::fs::read_dir(dir).at("list", dir)? {
        let item = item.at("list", dir)?;
        let path = item.path();
        let Some(name) = item.file_name().to_str().map(str::to_owned) else {
            return Err(Error::NotAFile { path });
        };
        let relative = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}/{name}")
        };
        let is_noise = name == ".git" || name.starts_with(".#");
        if is_noise
            || exclude
                .iter()
                .any(|pattern| glob::matches(pattern, &relative))
        {
            continue;
        }
        let is_link = item.file_type().at("look at", &path)?.is_symlink();
        let metadata = std::fs::metadata(&path).at("look at", &path)?;
        if metadata.is_file() {
            found.push(Entry {
                relative,
                path,
                metadata,
            });
        } else if metadata.is_dir() && !is_link {
            if !path.join("CMakeCache.txt").exists() {
                visit(&path, relative, exclude, found)?;
            }
        } else {
            return Err(Error::NotAFile { path });
        }
    }
    Ok(())
}
