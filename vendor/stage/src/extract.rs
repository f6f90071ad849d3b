//! Takes the tree out of upstream's source archive.

use crate::error::{Error, IoContext, Result};
use crate::event::{Event, Reporter};
use crate::glob;
use crate::upstream::Upstream;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Component, Path, PathBuf};

/// Unpacks what lies in `upstream.subdir` of `archive` into the folder `root`, without what is excluded. Returns the number
/// of files.
///
/// # Errors
/// [`Error::Archive`] for something that is no such archive, and for a link or a path that leaves the tree.
pub fn tree(archive: &Path, upstream: &Upstream, root: &Path, reporter: &Reporter) -> Result<u64> {
    let file = File::open(archive).at("open", archive)?;
    let wrong = |reason: String| Error::Archive {
        path: archive.to_owned(),
        reason,
    };
    let broken = |error: std::io::Error| wrong(format!("not a complete .tar.gz: {error}"));
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(BufReader::new(file)));
    let mut files = 0;
    for entry in tar.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let Some(relative) = inside(&path, &upstream.subdir) else {
            continue;
        };
        let Some(relative) = relative else {
            return Err(wrong(format!("{} leaves the tree", path.display())));
        };
        if is_excluded(&relative, &upstream.exclude) || entry.header().entry_type().is_dir() {
            continue;
        }
        if !entry.header().entry_type().is_file() {
            return Err(wrong(format!("{} is a link or a device", path.display())));
        }
        let target = root.join(&relative);
        let parent = target.parent().unwrap_or(root);
        std::fs::create_dir_all(parent).at("make", parent)?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(broken)?;
        std::fs::write(&target, content).at("write", &target)?;
        make_runnable(&target, entry.header().mode().unwrap_or(0))?;
        files += 1;
        if files % 100 == 0 {
            reporter.send(Event::Extracting { files });
        }
    }
    if files == 0 {
        return Err(wrong(format!("it has no folder {}", upstream.subdir)));
    }
    reporter.send(Event::Extracting { files });
    Ok(files)
}

/// The path below `<top folder>/<subdir>`: `None` where it lies elsewhere, `Some(None)` where it would leave it.
fn inside(path: &Path, subdir: &str) -> Option<Option<String>> {
    let mut parts = path
        .components()
        .filter(|part| !matches!(part, Component::CurDir));
    parts.next()?;
    for expected in subdir.split('/') {
        if parts.next()?.as_os_str() != expected {
            return None;
        }
    }
    let rest: Vec<Component<'_>> = parts.collect();
    if rest.is_empty() {
        return None;
    }
    if rest
        .iter()
        .any(|part| !matches!(part, Component::Normal(_)))
    {
        return Some(None);
    }
    let rest: PathBuf = rest.iter().collect();
    Some(rest.to_str().map(|text| text.replace('\\', "/")))
}

/// Whether a pattern matches the path or a folder that it lies in.
fn is_excluded(relative: &str, exclude: &[String]) -> bool {
    let ends = relative
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([relative.len()]);
    ends.into_iter().any(|end| {
        exclude
            .iter()
            .any(|pattern| glob::matches(pattern, &relative[..end]))
    })
}

fn make_runnable(path: &Path, mode: u32) -> Result<()> {
    #[cfg(unix)]
    if mode & 0o100 != 0 {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).at("write", path)?;
    }
    let _ = (path, mode);
    Ok(())
}
