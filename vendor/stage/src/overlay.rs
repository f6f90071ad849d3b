//! Lays `kernels/` over a tree, and keeps it up to date in one that is staged.

use crate::error::{Error, IoContext, Result};
use crate::{fsx, hash, walk};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

/// Folder of the tree in which our files lie.
pub const DIR: &str = "rkv";

/// The header that says what was built, relative to [`DIR`]. It is generated, so that it changes only with upstream, the patches
/// or the kernels.
const STAMP_HEADER: &str = "include/rkv-stamp.h";

/// What no library is made of.
const TESTS: &str = "tests/";

/// What is laid over a tree.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// `kernels/`.
    pub kernels: &'a Path,
    /// What `RKV_BUILD_STAMP` says of upstream and the patches.
    pub stamp: &'a str,
}

impl Overlay<'_> {
    /// Lays the files over the tree at `root`, which has none yet.
    ///
    /// # Errors
    /// [`Error::Collision`] where something lies in their place.
    pub fn lay(&self, root: &Path) -> Result<()> {
        let dir = root.join(DIR);
        if dir.exists() {
            let first = walk::files(&dir, &[])
                .ok()
                .and_then(|files| files.into_iter().next());
            let reason = "upstream has this path; give the overlay another name in vendor/stage/src/overlay.rs and the patches";
            return Err(Error::Collision {
                path: first.map_or(dir, |entry| entry.path),
                reason,
            });
        }
        self.sync(root).map(drop)
    }

    /// Makes the files below `root` those of `kernels/`. A file that changed, or that was touched, gets a new time, so that it
    /// is compiled again; all others keep theirs. Answers the text of `RKV_BUILD_STAMP`.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn sync(&self, root: &Path) -> Result<String> {
        let dir = root.join(DIR);
        let mut hasher = hash::TreeHasher::default();
        let mut wanted = BTreeSet::from([STAMP_HEADER.to_owned()]);
        for entry in walk::files(self.kernels, &[])? {
            if entry.relative == STAMP_HEADER {
                let reason = "this file is generated; delete it from kernels/";
                return Err(Error::Collision {
                    path: entry.path,
                    reason,
                });
            }
            let content = std::fs::read(&entry.path).at("read", &entry.path)?;
            let modified = entry.metadata.modified().at("look at", &entry.path)?;
            update(&dir.join(&entry.relative), &content, Some(modified))?;
            if !entry.relative.starts_with(TESTS) {
                hasher.add(&entry.relative, &content);
            }
            wanted.insert(entry.relative);
        }
        let text = format!("{}, kernels {}", self.stamp, &hasher.finish()[..16]);
        update(&dir.join(STAMP_HEADER), header(&text).as_bytes(), None)?;
        for entry in walk::files(&dir, &[])? {
            if !wanted.contains(&entry.relative) {
                std::fs::remove_file(&entry.path).at("delete", &entry.path)?;
            }
        }
        Ok(text)
    }
}

fn header(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "#pragma once\n\n// Generated when the tree was staged.\n#define RKV_BUILD_STAMP \"{text}\"\n"
    )
}

/// Writes `target` where its content differs, and moves its time forward where `modified` is newer. The time of a changed
/// file is never in the past, or a build that ran after `modified` would not see the change.
fn update(target: &Path, content: &[u8], modified: Option<SystemTime>) -> Result<()> {
    let newest = modified.unwrap_or(SystemTime::UNIX_EPOCH);
    if std::fs::read(target).is_ok_and(|old| old == content) {
        let laid = target
            .metadata()
            .and_then(|data| data.modified())
            .at("look at", target)?;
        return if newest > laid {
            fsx::set_modified(target, newest)
        } else {
            Ok(())
        };
    }
    fsx::write_atomic(target, content)?;
    let now = SystemTime::now();
    if newest > now {
        fsx::set_modified(target, newest)
    } else {
        Ok(())
    }
}
