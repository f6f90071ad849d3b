//! What git knows of the repository.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;

/// Why the last commit cannot stand for what lies in the folder; `None` if it can.
pub fn why_not_committed(place: &Place) -> Option<String> {
    let git = |args: &[&str]| {
        Run::new("git")
            .args(args)
            .dir(&place.root)
            .quietly()
            .and_then(|ended| ended.success())
    };
    if git(&["rev-parse", "--verify", "--quiet", "HEAD"]).is_err() {
        return Some("there is no commit yet".into());
    }
    match git(&["status", "--porcelain"]) {
        Ok(ended) if ended.stdout.is_empty() => None,
        Ok(_) => Some("the working tree has changes that are not committed".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// Copies every file that git tracks or would track to `to`, with its time of change.
pub fn copy_tree(place: &Place, to: &Path) -> Result<()> {
    let list = Run::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .dir(&place.root)
        .next("run this in a clone of the repository: git tells which files belong to it")
        .quietly()?
        .success()?
        .stdout;
    for name in list
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        let (from, place) = (place.root.join(&name), to.join(&name));
        // A file that was deleted but is still in git's index.
        let Ok(data) = fs::metadata(&from) else {
            continue;
        };
        let folder = place.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        fs::copy(&from, &place).map_err(Error::file("copy", &from))?;
        let time = data.modified().map_err(Error::file("look at", &from))?;
        set_modified(&place, time)?;
    }
    Ok(())
}

/// Sets a file's time of change.
pub fn set_modified(file: &Path, time: std::time::SystemTime) -> Result<()> {
    let open = File::options().append(true).open(file);
    open.and_then(|file| file.set_modified(time))
        .map_err(Error::file("change the time of", file))
}
