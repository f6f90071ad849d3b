//! One process at a time in a folder.

use crate::error::{IoContext, Result};
use crate::event::{Event, Reporter};
use std::fs::{File, TryLockError};
use std::path::Path;

/// The lock of a folder; held until dropped, and released by the system when a process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the folder where needed and waits for its lock, saying so once.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn take(dir: &Path, reporter: &Reporter) -> Result<Self> {
        std::fs::create_dir_all(dir).at("make", dir)?;
        let path = dir.join(".lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .at("open", &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                reporter.send(Event::Waiting);
                file.lock().at("lock", &path)?;
            }
            Err(TryLockError::Error(error)) => Err(error).at("lock", &path)?,
        }
        Ok(Self { _file: file })
    }
}
