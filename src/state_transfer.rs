//! Moving state between the C side and a place of ours, and files that appear whole.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::error::{Failure, FailureKind, StateError};

impl StateError {
    /// Names the file, which the transfer does not know.
    pub(crate) fn with_path(self, path: &Path) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io {
                path: path.to_owned(),
                source,
            },
            other => other,
        }
    }
}

/// Room for a state is made by the length that llama.cpp announces; a state of another length is a fault of its writer.
pub(crate) fn check_written(announced: u64, written: u64) -> Result<(), StateError> {
    if announced == written {
        return Ok(());
    }
    let text = format!("llama.cpp announced a state of {announced} bytes and wrote {written}");
    Err(Failure::new(FailureKind::Refused, text).into())
}

pub(crate) enum Transfer<'a> {
    Read(&'a mut dyn FnMut(&mut [u8]) -> io::Result<()>),
    Write(&'a mut dyn FnMut(&[u8]) -> io::Result<()>),
}

/// What the C side calls back into, for the time of one transfer.
pub(crate) struct Port<'a> {
    pub(crate) transfer: Transfer<'a>,
    pub(crate) error: Option<io::Error>,
}

impl Port<'_> {
    /// Runs one step; an error or a panic stops the transfer instead of crossing into C++.
    fn step(&mut self, work: impl FnOnce(&mut Transfer<'_>) -> io::Result<()>) -> bool {
        let done = catch_unwind(AssertUnwindSafe(|| work(&mut self.transfer)));
        self.error = match done {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(io::Error::other("the transfer panicked")),
        };
        false
    }
}

pub(crate) unsafe extern "C" fn write_piece(
    user_data: *mut c_void,
    data: *const c_void,
    size: usize,
) -> bool {
    // SAFETY: `user_data` is the Port of the running Context::write, and only this thread works with it.
    let port = unsafe { &mut *user_data.cast::<Port<'_>>() };
    // SAFETY: the C side passes `size` readable bytes for the time of this call.
    let piece = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    port.step(|transfer| match transfer {
        Transfer::Write(sink) => sink(piece),
        Transfer::Read(_) => Err(io::Error::other("a reading transfer was asked to write")),
    })
}

pub(crate) unsafe extern "C" fn read_piece(
    user_data: *mut c_void,
    data: *mut c_void,
    size: usize,
) -> bool {
    // SAFETY: `user_data` is the Port of the running Context::replace, and only this thread works with it.
    let port = unsafe { &mut *user_data.cast::<Port<'_>>() };
    if size == 0 {
        return true;
    }
    // SAFETY: the C side passes `size` writable bytes for the time of this call; they may be uninitialised, and bytes
    // have no invalid values.
    let piece = unsafe {
        std::ptr::write_bytes(data.cast::<u8>(), 0, size);
        std::slice::from_raw_parts_mut(data.cast::<u8>(), size)
    };
    port.step(|transfer| match transfer {
        Transfer::Read(source) => source(piece),
        Transfer::Write(_) => Err(io::Error::other("a writing transfer was asked to read")),
    })
}

/// A file that gets its name only when it is complete, and vanishes otherwise.
pub(crate) struct NewFile {
    pub(crate) file: File,
    temporary: PathBuf,
    complete: bool,
}

impl NewFile {
    pub(crate) fn beside(path: &Path) -> io::Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("this path does not name a file"))?;
        let mut temporary_name = name.to_owned();
        temporary_name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(temporary_name);
        Ok(Self {
            file: File::create(&temporary)?,
            temporary,
            complete: false,
        })
    }

    pub(crate) fn finish(mut self, header: &[u8], path: &Path) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(header)?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, path)?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.complete {
            // Nothing can be done about a leftover that cannot be removed either.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
