//! Small file operations that leave either the old state or the new one.

use crate::error::{IoContext, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// Writes a file by way of a temporary sibling, making its folder where needed.
pub(crate) fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).at("make", dir)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".#");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o644));
    }
    let mut file = builder.tempfile_in(dir).at("write into", dir)?;
    file.write_all(content).at("write", path)?;
    file.persist(path)
        .map_err(|error| error.error)
        .at("write", path)?;
    Ok(())
}

/// Like [`write_atomic`], but leaves a file alone that has this content. Says whether it wrote.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> Result<bool> {
    if std::fs::read(path).is_ok_and(|old| old == content) {
        return Ok(false);
    }
    write_atomic(path, content)?;
    Ok(true)
}

/// Sets the time of the last change.
pub(crate) fn set_modified(path: &Path, time: SystemTime) -> Result<()> {
    let file = File::options().write(true).open(path).at("open", path)?;
    file.set_modified(time).at("set the time of", path)
}

/// Deletes a folder and what is in it; one that is not there is fine.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.at("delete", path),
    }
}

/// Deletes the folders in `dir` whose name begins with `prefix`: what a killed run left behind.
pub(crate) fn remove_stale(dir: &Path, prefix: &str) -> Result<()> {
    for item in std::fs::read_dir(dir).at("list", dir)? {
        let item = item.at("list", dir)?;
        if item.file_name().to_string_lossy().starts_with(prefix) {
            remove_dir(&item.path())?;
        }
    }
    Ok(())
}

/// A folder that is deleted on drop unless it was renamed into place.
#[derive(Debug)]
pub(crate) struct Temporary(Option<std::path::PathBuf>);

impl Temporary {
    pub(crate) fn create(path: std::path::PathBuf) -> Result<Self> {
        remove_dir(&path)?;
        std::fs::create_dir_all(&path).at("make", &path)?;
        Ok(Self(Some(path)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Renames the folder to `place`, which must not exist.
    pub(crate) fn persist(mut self, place: &Path) -> Result<()> {
        std::fs::rename(self.path(), place).at("rename a temporary folder to", place)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
