//! `patches open`: a git work tree of upstream's source with one commit per patch, to edit in.
//!
//! It is not the tree that is built: a `.git` folder in that one makes upstream's cmake files run again and again.

use crate::error::{Error, IoContext, Result};
use crate::git::Git;
use crate::patch::Patch;
use crate::series::Series;
use crate::source::SourceTree;
use crate::upstream::{Repo, Upstream};
use crate::{fsx, overlay, tree};
use std::path::{Path, PathBuf};

pub use crate::refresh::{Refreshed, refresh};

/// The tag of the commit that holds upstream's unchanged tree.
pub const PRISTINE: &str = "pristine";

/// What `patches open` made.
#[derive(Debug)]
pub struct Opened {
    /// The work tree.
    pub dir: PathBuf,
    /// The patches that fit, in order.
    pub applied: Vec<String>,
    /// The patches that fit only elsewhere in their file, and were moved there: to be looked at.
    pub moved: Vec<String>,
    /// The patches that do not fit: each has an empty commit, and what was wrong with it. Their change is to be made by hand.
    pub failed: Vec<(String, Error)>,
}

/// Where the work tree lies by default.
#[must_use]
pub fn default_dir(target: &Path) -> PathBuf {
    target.join(crate::plan::DIR).join("open")
}

/// Makes the work tree `dir`. `kernels/` is linked into it where our files lie in the staged tree, and ignored by git.
///
/// # Errors
/// [`Error::Checkout`] where `dir` is there already; what is wrong with the tree or the form of a patch.
pub fn open(repo: &Repo, upstream: &Upstream, source: &SourceTree, dir: &Path) -> Result<Opened> {
    if dir.exists() {
        let reason = "is open already; go on there, or write it back with `cargo xtask patches refresh`, or delete the folder";
        return Err(Error::Checkout {
            dir: dir.to_owned(),
            reason: reason.to_owned(),
        });
    }
    let series = Series::read(&repo.patches())?;
    let parent = dir.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).at("make", parent)?;
    fsx::remove_stale(parent, TEMPORARY)?;
    let temporary =
        fsx::Temporary::create(parent.join(format!("{TEMPORARY}{}", std::process::id())))?;
    let root = temporary.path();
    let tree_sha256 = source.pinned(upstream);
    let request = tree::Request {
        source: &source.path,
        exclude: &upstream.exclude,
        tree_sha256,
        series: None,
        overlay: None,
    };
    tree::fill(root, &request)?;
    let git = Git::init(root, overlay::DIR)?;
    git.commit(&pristine_message(upstream), "2000-01-01")?;
    git.run(["tag", PRISTINE])?;
    let mut opened = Opened {
        dir: dir.to_owned(),
        applied: Vec::new(),
        moved: Vec::new(),
        failed: Vec::new(),
    };
    for patch in &series.patches {
        replay(&git, root, patch, &mut opened)?;
    }
    link_kernels(repo, root)?;
    temporary.persist(dir)?;
    Ok(opened)
}

const TEMPORARY: &str = "open.tmp-";

pub(crate) fn pristine_message(upstream: &Upstream) -> String {
    format!("{}\n", upstream.base())
}

/// Commits one patch: where it stands, or where its context now is, or as an empty commit.
fn replay(git: &Git, root: &Path, patch: &Patch, opened: &mut Opened) -> Result<()> {
    match patch.apply(root) {
        Ok(()) => opened.applied.push(patch.name.clone()),
        Err(error @ Error::Patch { .. }) => {
            git.run(["checkout", "--quiet", "--", "."])?;
            if patch.apply_moved(root)? {
                opened.moved.push(patch.name.clone());
            } else {
                opened.failed.push((patch.name.clone(), error));
            }
        }
        Err(error) => return Err(error),
    }
    git.commit(
        &format!("{}\n\n{}", patch.name, patch.header_text),
        patch.header.first("Last-Update"),
    )
}

/// Links `kernels/` to where the staged tree has it, so that an editor finds the headers.
fn link_kernels(repo: &Repo, root: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let link = root.join(overlay::DIR);
        let kernels = std::path::absolute(repo.kernels()).at("look at", &repo.kernels())?;
        std::os::unix::fs::symlink(kernels, &link).at("make", &link)?;
    }
    let _ = (repo, root);
    Ok(())
}
