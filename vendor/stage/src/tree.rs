//! Staging: a patched copy of upstream's tree that is complete or absent.

use crate::error::{IoContext, Result};
use crate::hooks::Places;
use crate::overlay::Overlay;
use crate::series::Series;
use crate::{fsx, hash, walk};
use std::path::{Path, PathBuf};

/// Name of the staged tree in its folder.
pub const DIR: &str = "src";
const TEMPORARY: &str = "src.tmp-";
const OLD: &str = "src.old";

/// What to stage.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Upstream's tree.
    pub source: &'a Path,
    /// What to leave out of it.
    pub exclude: &'a [String],
    /// The pinned hash; `None` for a tree of the user's.
    pub tree_sha256: Option<&'a str>,
    /// The patches; `None` for an unpatched tree.
    pub series: Option<&'a Series>,
    /// What to lay over it; `None` for an unpatched tree.
    pub overlay: Option<Overlay<'a>>,
}

/// Stages into `dir/src`, replacing what is there in the end. The caller holds the lock of `dir`.
///
/// # Errors
/// Whatever is wrong with the tree, the patches or the overlay; `dir` is then as it was.
pub fn stage(dir: &Path, request: &Request<'_>) -> Result<PathBuf> {
    prepare(dir, request)?.swap()
}

/// A complete tree that is not in its place yet; deleted on drop.
#[derive(Debug)]
pub struct Prepared {
    temporary: fsx::Temporary,
    dir: PathBuf,
}

/// Makes the tree beside `dir/src`. Files that come out as they are there get the time that they have there, so that a build
/// compiles only what changed.
///
/// # Errors
/// As [`stage`].
pub fn prepare(dir: &Path, request: &Request<'_>) -> Result<Prepared> {
    recover(dir)?;
    let temporary = fsx::Temporary::create(dir.join(format!("{TEMPORARY}{}", std::process::id())))?;
    fill(temporary.path(), request)?;
    keep_times(&dir.join(DIR), temporary.path())?;
    Ok(Prepared {
        temporary,
        dir: dir.to_owned(),
    })
}

impl Prepared {
    /// Puts the tree in its place, and deletes the one that was there.
    ///
    /// # Errors
    /// A folder that cannot be renamed or deleted; [`recover`] puts that right.
    pub fn swap(self) -> Result<PathBuf> {
        let (place, old) = (self.dir.join(DIR), self.dir.join(OLD));
        if place.exists() {
            std::fs::rename(&place, &old).at("rename", &place)?;
        }
        self.temporary.persist(&place)?;
        fsx::remove_dir(&old)?;
        Ok(place)
    }
}

/// Puts right what a killed run left: a tree that was moved aside comes back, half made ones go.
///
/// # Errors
/// A folder that cannot be renamed or deleted.
pub fn recover(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).at("make", dir)?;
    let (place, old) = (dir.join(DIR), dir.join(OLD));
    if old.exists() && !place.exists() {
        std::fs::rename(&old, &place).at("rename", &old)?;
    }
    fsx::remove_dir(&old)?;
    fsx::remove_stale(dir, TEMPORARY)
}

/// Makes the complete tree in the empty folder `root`.
///
/// # Errors
/// As [`stage`]; `root` is then half filled.
pub fn fill(root: &Path, request: &Request<'_>) -> Result<()> {
    let mut places = copy(root, request)?;
    if let Some(series) = request.series {
        for patch in &series.patches {
            patch.apply(root)?;
        }
        places = patched_places(root, series, places)?;
        places.check(&series.patches)?;
    }
    match &request.overlay {
        Some(overlay) => overlay.lay(root),
        None => Ok(()),
    }
}

/// Copies and verifies in one reading; returns the hook markers that upstream already has.
fn copy(root: &Path, request: &Request<'_>) -> Result<Places> {
    let (mut hasher, mut places) = (hash::TreeHasher::default(), Places::default());
    for entry in walk::files(request.source, request.exclude)? {
        let content = std::fs::read(&entry.path).at("read", &entry.path)?;
        let target = root.join(&entry.relative);
        let parent = target.parent().unwrap_or(root);
        std::fs::create_dir_all(parent).at("make", parent)?;
        std::fs::write(&target, &content).at("write", &target)?;
        if cfg!(unix) {
            std::fs::set_permissions(&target, permissions(&entry)).at("write", &target)?;
        }
        if request.tree_sha256.is_some() {
            hasher.add(&entry.relative, &content);
        }
        places.add(&entry.relative, &content);
    }
    if let Some(expected) = request.tree_sha256 {
        hash::require(request.source, expected, hasher.finish())?;
    }
    Ok(places)
}

/// Those of the source, but writable: a cache may be read-only.
fn permissions(entry: &walk::Entry) -> std::fs::Permissions {
    let mut permissions = entry.metadata.permissions();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        permissions.set_mode(permissions.mode() | 0o600);
    }
    permissions
}

/// The markers of the tree after the patches: those of untouched files, and those of patched files read again.
fn patched_places(root: &Path, series: &Series, mut places: Places) -> Result<Places> {
    let mut targets: Vec<&str> = series
        .patches
        .iter()
        .flat_map(|patch| &patch.files)
        .map(|file| file.target.as_str())
        .collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        places.forget(target);
        let path = root.join(target);
        places.add(target, &std::fs::read(&path).at("read", &path)?);
    }
    Ok(places)
}

/// Gives each file of `new` that `old` has with the same content the time that it has there.
fn keep_times(old: &Path, new: &Path) -> Result<()> {
    for entry in walk::files(new, &[])? {
        let before = old.join(&entry.relative);
        let Ok(metadata) = before.metadata() else {
            continue;
        };
        if metadata.len() != entry.metadata.len() {
            continue;
        }
        let same = std::fs::read(&before).at("read", &before)?
            == std::fs::read(&entry.path).at("read", &entry.path)?;
        if same {
            fsx::set_modified(&entry.path, metadata.modified().at("look at", &before)?)?;
        }
    }
    Ok(())
}
