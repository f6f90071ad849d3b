//! `patches/series`: which patches there are, and their order.

use crate::error::{Error, IoContext, Result};
use crate::patch::Patch;
use crate::walk;
use std::path::{Path, PathBuf};

/// What is wrong with the list of patches.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesFault {
    /// A line names a file that is not there.
    #[error("line {line} names {entry}, which is not there; add the file or delete the line")]
    Missing {
        /// The name.
        entry: String,
        /// Line of `series`, from 1.
        line: usize,
    },
    /// A line repeats an earlier one.
    #[error("line {line} names {entry} again (first on line {first}); delete one of the two lines")]
    Duplicate {
        /// The name.
        entry: String,
        /// Line of `series` that named it first.
        first: usize,
        /// Line that repeats it.
        line: usize,
    },
    /// A line names something outside the folder.
    #[error(
        "line {line} names {entry}, which is outside this folder; move the patch into patches/"
    )]
    Outside {
        /// The name.
        entry: String,
        /// Line of `series`, from 1.
        line: usize,
    },
    /// A name that does not follow the rules of patches/README.md.
    #[error(
        "line {line} names {entry}; a patch is called by its intention, in lower-case letters, digits and dashes, does \
         not begin with a number, and ends in .patch: rename it"
    )]
    Name {
        /// The name.
        entry: String,
        /// Line of `series`, from 1.
        line: usize,
    },
    /// A patch that no line names.
    #[error(
        "no line of patches/series names this patch, so it would never be applied; add a line or delete the file"
    )]
    Orphan,
}

/// The patches in the order in which they are applied.
#[derive(Debug)]
pub struct Series {
    /// The folder they lie in.
    pub dir: PathBuf,
    /// The patches, parsed, each with its header.
    pub patches: Vec<Patch>,
}

impl Series {
    /// Reads `dir/series` and every patch that it names, and checks that it names every patch in `dir` exactly once.
    ///
    /// # Errors
    /// [`Error::Series`], and what [`Patch::read`] finds.
    pub fn read(dir: &Path) -> Result<Self> {
        let entries = entries(dir)?;
        for file in walk::files(dir, &[])? {
            if file.relative.ends_with(".patch") && !entries.contains(&file.relative) {
                return Err(Error::Series {
                    path: file.path,
                    fault: SeriesFault::Orphan,
                });
            }
        }
        let patches = entries
            .iter()
            .map(|name| Patch::read(dir, name))
            .collect::<Result<_>>()?;
        Ok(Self {
            dir: dir.to_owned(),
            patches,
        })
    }

    /// SHA-256 over names and contents in order, 64 hex digits; empty for no patch.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hasher = crate::hash::TreeHasher::default();
        for patch in &self.patches {
            hasher.add(&patch.name, patch.text.as_bytes());
        }
        hasher.finish()
    }
}

/// The names in `dir/series`, checked one by one.
fn entries(dir: &Path) -> Result<Vec<String>> {
    let path = dir.join("series");
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    let mut seen: Vec<(String, usize)> = Vec::new();
    for (line, entry) in names(&text) {
        let fault = if entry.starts_with('/')
            || entry.split('/').any(|part| matches!(part, "" | "." | ".."))
        {
            Some(SeriesFault::Outside {
                entry: entry.to_owned(),
                line,
            })
        } else if let Some((_, first)) = seen.iter().find(|(name, _)| name == entry) {
            Some(SeriesFault::Duplicate {
                entry: entry.to_owned(),
                first: *first,
                line,
            })
        } else if !name_is_good(entry) {
            Some(SeriesFault::Name {
                entry: entry.to_owned(),
                line,
            })
        } else if !dir.join(entry).is_file() {
            Some(SeriesFault::Missing {
                entry: entry.to_owned(),
                line,
            })
        } else {
            None
        };
        if let Some(fault) = fault {
            return Err(Error::Series { path, fault });
        }
        seen.push((entry.to_owned(), line));
    }
    Ok(seen.into_iter().map(|(name, _)| name).collect())
}

/// Line number (from 1) and name of each entry in the text of a `series` file; `#` starts a comment.
pub(crate) fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let name = line.split('#').next().unwrap_or_default().trim();
        (!name.is_empty()).then_some((index + 1, name))
    })
}

/// Whether every part of the path is lower-case letters, digits and dashes and begins with a letter.
pub(crate) fn name_is_good(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".patch") else {
        return false;
    };
    stem.split('/').all(|part| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    })
}
