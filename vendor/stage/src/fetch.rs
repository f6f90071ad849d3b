//! Gets upstream's source archive with pip, and the tree out of it, into a folder of the user's.

use crate::env::{Env, is_program};
use crate::error::{Error, IoContext, Result};
use crate::event::{Event, Reporter};
use crate::upstream::Upstream;
use crate::{command, extract, fsx, hash, lock};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const TEMPORARY: &str = "fetch-tmp-";

/// The user's cache: `ROLLING_KV_CACHE_DIR`, or `rolling-kv` in `XDG_CACHE_HOME`, or `~/.cache/rolling-kv`.
///
/// # Errors
/// [`Error::Env`] where none of the three is set.
pub fn cache_dir(env: &Env) -> Result<PathBuf> {
    let xdg = || env.path("XDG_CACHE_HOME").map(|dir| dir.join("rolling-kv"));
    let home = || env.path("HOME").map(|dir| dir.join(".cache/rolling-kv"));
    env.path("ROLLING_KV_CACHE_DIR")
        .or_else(xdg)
        .or_else(home)
        .ok_or_else(|| Error::Env {
            name: "ROLLING_KV_CACHE_DIR".to_owned(),
            reason: "is not set, nor is HOME; set it to a folder for the upstream tree".to_owned(),
        })
}

/// Makes sure that the tree lies in `cache`, and returns where. What an earlier run finished is used: an archive with the
/// right hash is not fetched again, a half made tree is made anew.
///
/// # Errors
/// [`Error::Fetch`], [`Error::Hash`] or [`Error::Archive`].
pub fn tree(upstream: &Upstream, cache: &Path, env: &Env, reporter: &Reporter) -> Result<PathBuf> {
    let _lock = lock::Lock::take(cache, reporter)?;
    let place = cache.join(upstream.cache_key());
    if place.is_dir() {
        return Ok(place);
    }
    let (temporary, found) = unpacked(upstream, cache, env, reporter)?;
    hash::require(&cache.join(&upstream.file), &upstream.tree_sha256, found)?;
    temporary.persist(&place)?;
    Ok(place)
}

/// The hash that the tree in the pinned archive has, whatever `tree_sha256` says: what a bump writes there.
///
/// # Errors
/// As [`tree`].
pub fn tree_sha256(
    upstream: &Upstream,
    cache: &Path,
    env: &Env,
    reporter: &Reporter,
) -> Result<String> {
    let _lock = lock::Lock::take(cache, reporter)?;
    Ok(unpacked(upstream, cache, env, reporter)?.1)
}

/// The tree in a temporary folder, and its hash. The caller holds the lock of `cache`.
fn unpacked(
    upstream: &Upstream,
    cache: &Path,
    env: &Env,
    reporter: &Reporter,
) -> Result<(fsx::Temporary, String)> {
    fsx::remove_stale(cache, TEMPORARY)?;
    let archive = archive(upstream, cache, env, reporter)?;
    let temporary =
        fsx::Temporary::create(cache.join(format!("{TEMPORARY}tree-{}", std::process::id())))?;
    extract::tree(&archive, upstream, temporary.path(), reporter)?;
    let found = hash::tree_sha256(temporary.path())?;
    Ok((temporary, found))
}

/// The archive in `cache`, fetched where it is not there with the right hash. The caller holds the lock of `cache`.
fn archive(upstream: &Upstream, cache: &Path, env: &Env, reporter: &Reporter) -> Result<PathBuf> {
    let place = cache.join(&upstream.file);
    if place.is_file() {
        if hash::file_sha256(&place)? == upstream.sha256 {
            return Ok(place);
        }
        std::fs::remove_file(&place).at("delete", &place)?;
    }
    reporter.send(Event::FetchStarted {
        package: upstream.title(),
        bytes: upstream.bytes,
    });
    let temporary =
        fsx::Temporary::create(cache.join(format!("{TEMPORARY}{}", std::process::id())))?;
    let file = download(upstream, temporary.path(), env, reporter)?;
    hash::require(&file, &upstream.sha256, hash::file_sha256(&file)?)?;
    std::fs::rename(&file, &place).at("rename", &file)?;
    Ok(place)
}

/// Runs pip in the empty folder `dir`, and returns where the archive lies in it.
///
/// pip would go on to unpack the archive and to ask its build system for the package's name, which takes longer than the
/// download and needs more packages. It is stopped once the whole archive is there; the caller checks the hash.
fn download(upstream: &Upstream, dir: &Path, env: &Env, reporter: &Reporter) -> Result<PathBuf> {
    let log = dir.join("pip.log");
    let failed = |reason: String| Error::Fetch {
        package: upstream.title(),
        reason,
    };
    let python = env
        .which("python3")
        .ok_or_else(|| failed("python3 is not on the PATH".to_owned()))?;
    let mut pip = pip(upstream, &interpreter(&python), dir, &log)?;
    let mut child = pip
        .spawn()
        .map_err(|error| failed(format!("python3 could not be started: {error}")))?;
    let (mut bytes_done, bytes_total) = (0, upstream.bytes);
    loop {
        let ended = child.try_wait().at("wait for", &log)?;
        let bytes = largest(dir, &upstream.file).map_or(0, |(_, bytes)| bytes);
        if ended.is_some() || bytes == bytes_total {
            let _ = child.kill();
            let status = child.wait().at("wait for", &log)?;
            let file =
                largest(dir, &upstream.file).filter(|_| status.success() || bytes == bytes_total);
            return file.map(|(file, _)| file).ok_or_else(|| {
                let said = command::tail(&log, 15);
                failed(format!(
                    "pip ended with {status} and left no {}:\n{said}\n",
                    upstream.file
                ))
            });
        }
        bytes_done = bytes.max(bytes_done);
        reporter.send(Event::Fetching {
            bytes_done,
            bytes_total,
        });
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// pip, told to put the pinned archive into `dir`, with its temporary files in there as well.
fn pip(upstream: &Upstream, python: &Path, dir: &Path, log: &Path) -> Result<Command> {
    let (requirements, work) = (dir.join("requirements.txt"), dir.join("work"));
    std::fs::write(&requirements, upstream.requirement()).at("write", &requirements)?;
    std::fs::create_dir_all(&work).at("make", &work)?;
    let output = std::fs::File::create(log).at("write", log)?;
    let errors = output.try_clone().at("write", log)?;
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-input",
        "--progress-bar",
        "off",
    ]);
    pip.args([
        "--disable-pip-version-check",
        "--no-binary",
        &upstream.package,
    ]);
    pip.args(["--require-hashes", "--requirement"])
        .arg(&requirements)
        .arg("--dest")
        .arg(dir);
    pip.env("TMPDIR", &work)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    Ok(pip)
}

/// The program that a `python3` which only forwards to one runs in the end: stopping the forwarder would not stop pip.
fn interpreter(python: &Path) -> PathBuf {
    let mut ask = Command::new(python);
    let answer = command::output(ask.args(["-c", "import sys; print(sys.executable)"]));
    answer
        .map(PathBuf::from)
        .filter(|file| is_program(file))
        .unwrap_or_else(|| python.to_owned())
}

/// The largest file called `name` below `dir`, and its size.
fn largest(dir: &Path, name: &str) -> Option<(PathBuf, u64)> {
    let items = std::fs::read_dir(dir).ok()?.flatten();
    let found = items.filter_map(|item| match item.metadata() {
        Ok(data) if data.is_dir() => largest(&item.path(), name),
        Ok(data) if item.file_name() == name => Some((item.path(), data.len())),
        _ => None,
    });
    found.max_by_key(|(_, bytes)| *bytes)
}
