//! `patches check`: everything that staging demands of the patches, without leaving a tree behind.

use crate::error::Result;
use crate::overlay::Overlay;
use crate::series::Series;
use crate::source::SourceTree;
use crate::upstream::{Repo, Upstream};
use crate::{fsx, tree};
use std::path::Path;

/// What was found to be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Name, hooks and number of added lines of each patch, in order.
    pub patches: Vec<(String, Vec<String>, usize)>,
}

/// Applies the patches of `repo` to a copy of `source` in the folder `scratch`, lays `kernels/` over it, and deletes the copy.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(
    repo: &Repo,
    upstream: &Upstream,
    source: &SourceTree,
    scratch: &Path,
) -> Result<Checked> {
    let series = Series::read(&repo.patches())?;
    let kernels = repo.kernels();
    let temporary = fsx::Temporary::create(scratch.join(format!("check-{}", std::process::id())))?;
    let request = tree::Request {
        source: &source.path,
        exclude: &upstream.exclude,
        tree_sha256: source.pinned(upstream),
        series: Some(&series),
        overlay: Some(Overlay {
            kernels: &kernels,
            stamp: "",
        }),
    };
    tree::fill(temporary.path(), &request)?;
    let summary = series.patches.iter().map(|patch| {
        (
            patch.name.clone(),
            patch.header.hooks().map(str::to_owned).collect(),
            patch.added_lines().count(),
        )
    });
    Ok(Checked {
        patches: summary.collect(),
    })
}
