//! Finds upstream's tree.

use crate::env::Env;
use crate::error::{Error, IoContext, Result};
use crate::event::Reporter;
use crate::upstream::{Repo, Upstream};
use crate::{fetch, fsx, hash, tree};
use std::path::PathBuf;

/// Name of a half made `vendor/llama.cpp`.
const TEMPORARY: &str = "llama.cpp.tmp-";

/// Whether the tree may be fetched where it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// Fetch it with pip.
    Allowed,
    /// Answer with [`Error::SourceMissing`].
    Never,
}

/// Where a tree came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `ROLLING_KV_LLAMA_DIR`. Its hash is not checked, and `UPSTREAM.toml` says nothing about it.
    Override,
    /// `vendor/llama.cpp` of the checkout.
    Vendored,
    /// The user's cache, where it was or was put just now.
    Cache,
}

/// Upstream's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTree {
    /// Its root.
    pub path: PathBuf,
    /// Where it came from.
    pub origin: Origin,
}

impl SourceTree {
    /// The hash that the tree must have, where it must have one.
    #[must_use]
    pub fn pinned<'a>(&self, upstream: &'a Upstream) -> Option<&'a str> {
        (self.origin != Origin::Override).then_some(upstream.tree_sha256.as_str())
    }
}

/// [`find_with`] in the environment of this process, without reports.
///
/// # Errors
/// As [`find_with`].
pub fn find(repo: &Repo, upstream: &Upstream, fetch: Fetch) -> Result<SourceTree> {
    find_with(
        repo,
        upstream,
        fetch,
        &Env::from_process(),
        &Reporter::default(),
    )
}

/// Looks at `ROLLING_KV_LLAMA_DIR`, at `vendor/llama.cpp`, at the user's cache, and last fetches the tree. Its hash is
/// checked when it is staged.
///
/// # Errors
/// [`Error::SourceMissing`], or what [`fetch::tree`] says; [`Error::Env`] where the variable names no such tree.
pub fn find_with(
    repo: &Repo,
    upstream: &Upstream,
    fetch: Fetch,
    env: &Env,
    reporter: &Reporter,
) -> Result<SourceTree> {
    if let Some(path) = env.path("ROLLING_KV_LLAMA_DIR") {
        return overriding(path);
    }
    let vendored = repo.vendored();
    if vendored.join("CMakeLists.txt").is_file() {
        return Ok(SourceTree {
            path: vendored,
            origin: Origin::Vendored,
        });
    }
    let cache = fetch::cache_dir(env)?;
    let cached = cache.join(upstream.cache_key());
    if cached.is_dir() {
        return Ok(SourceTree {
            path: cached,
            origin: Origin::Cache,
        });
    }
    if fetch == Fetch::Never {
        let looked_at = format!(
            "ROLLING_KV_LLAMA_DIR, {} and {}",
            vendored.display(),
            cached.display()
        );
        return Err(Error::SourceMissing { looked_at });
    }
    Ok(SourceTree {
        path: fetch::tree(upstream, &cache, env, reporter)?,
        origin: Origin::Cache,
    })
}

fn overriding(path: PathBuf) -> Result<SourceTree> {
    let wrong = |reason: String| Error::Env {
        name: "ROLLING_KV_LLAMA_DIR".to_owned(),
        reason,
    };
    let path = std::path::absolute(&path).at("look at", &path)?;
    if !path.join("CMakeLists.txt").is_file() || !path.join("include/llama.h").is_file() {
        return Err(wrong(format!(
            "names {}, which is not a llama.cpp tree; name one, or unset it",
            path.display()
        )));
    }
    Ok(SourceTree {
        path,
        origin: Origin::Override,
    })
}

/// Puts the pinned tree into `vendor/llama.cpp`, fetching it into the user's cache first where needed. A tree with another
/// hash that lies there is replaced: that folder is git-ignored and belongs to this function.
///
/// # Errors
/// What [`fetch::tree`] says, or a copy that fails.
pub fn vendor(
    repo: &Repo,
    upstream: &Upstream,
    env: &Env,
    reporter: &Reporter,
) -> Result<SourceTree> {
    let found = SourceTree {
        path: repo.vendored(),
        origin: Origin::Vendored,
    };
    if verify(&found, upstream).is_ok() {
        return Ok(found);
    }
    let cached = fetch::tree(upstream, &fetch::cache_dir(env)?, env, reporter)?;
    let parent = repo.root.join("vendor");
    fsx::remove_stale(&parent, TEMPORARY)?;
    let temporary =
        fsx::Temporary::create(parent.join(format!("{TEMPORARY}{}", std::process::id())))?;
    let tree_sha256 = Some(upstream.tree_sha256.as_str());
    let request = tree::Request {
        source: &cached,
        exclude: &[],
        tree_sha256,
        series: None,
        overlay: None,
    };
    tree::fill(temporary.path(), &request)?;
    fsx::remove_dir(&found.path)?;
    temporary.persist(&found.path)?;
    Ok(found)
}

/// Checks the hash of a tree that must have one.
///
/// # Errors
/// [`Error::Hash`].
pub fn verify(tree: &SourceTree, upstream: &Upstream) -> Result<()> {
    match tree.pinned(upstream) {
        Some(expected) => hash::require(&tree.path, expected, hash::tree_sha256(&tree.path)?),
        None => Ok(()),
    }
}
