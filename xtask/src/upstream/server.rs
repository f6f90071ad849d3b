//! Upstream's own server tests, as far as they need no download.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::{Bench, LIMIT};
use crate::counts::pytest_closing_line;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;
use crate::wheels::{self, SERVER_TESTS};

/// Name of the module that stands in for upstream's conftest.py.
const PLUGIN: &str = "rkv_server_tests";

/// The folder with what the tests import; installed on first use.
pub fn python(place: &Place) -> Result<PathBuf> {
    let folder = place.target.join("tools-py");
    let mark = folder.join("rolling-kv-installed.txt");
    let wanted = SERVER_TESTS
        .iter()
        .map(|wheel| format!("{}=={}\n", wheel.package, wheel.version))
        .collect::<String>();
    if fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return Ok(folder);
    }
    wheels::pip_works()?;
    wheels::install(&SERVER_TESTS, &folder)?;
    fs::write(&mark, wanted).map_err(Error::file("write", &mark))?;
    Ok(folder)
}

/// Runs the tests in a copy of their folder and prints the reasons for what was skipped.
pub fn run(bench: &Bench) -> Result<Counts> {
    let tests = lay_out(bench)?;
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("server_tests");
    for name in [format!("{PLUGIN}.py"), "not_run.txt".to_owned()] {
        fs::copy(ours.join(&name), tests.join(&name))
            .map_err(Error::file("copy", &ours.join(&name)))?;
    }
    let search = std::env::join_paths([tests.clone(), bench.python.clone()]).map_err(|error| {
        Error::wrong(
            format!("a folder cannot be part of PYTHONPATH: {error}"),
            "use a folder without a colon",
        )
    })?;
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(8);
    let ended = Run::new("python3")
        .args([
            "-m",
            "pytest",
            "--noconftest",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
            "-q",
            "-n",
            &workers.to_string(),
            "--durations=30",
            "-rsfE",
            "--tb=short",
            "unit",
        ])
        .dir(&tests)
        .env("PYTHONPATH", search)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RKV_MODEL", &bench.model)
        .env("RKV_NOT_RUN", tests.join("not_run.txt"))
        .env("LLAMA_SERVER_BIN_PATH", bench.bin.join("llama-server"))
        // One thread each, since as many servers run as there are cores.
        .env("LLAMA_ARG_THREADS", "1")
        // Nothing may be fetched: the discard port answers no one.
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        // The tests' folder is ignored by the repository around it, and the search tool leaves out what git ignores.
        .env("GIT_CEILING_DIRECTORIES", &bench.scratch)
        .env("RKV_PORT", free_port()?.to_string())
        .limit(LIMIT)
        .next(format!(
            "see {}",
            bench.scratch.join("server.log").display()
        ))
        .quietly()?;
    super::save_log(bench, "server.log", &ended)?;
    let notes = ended.text.lines().filter(|line| {
        ["SKIPPED [", "FAILED unit/", "ERROR unit/"]
            .iter()
            .any(|start| line.starts_with(start))
    });
    notes.for_each(|line| println!("{line}"));
    let counts = ended
        .text
        .lines()
        .rev()
        .find_map(pytest_closing_line)
        .ok_or_else(|| ended.failure())?;
    super::agree(&ended, counts)
}

/// A copy of the tests, which write beside themselves, at the depth and with the neighbour that they expect.
fn lay_out(bench: &Bench) -> Result<PathBuf> {
    let root = bench.scratch.join("server");
    if root.exists() {
        fs::remove_dir_all(&root).map_err(Error::file("remove", &root))?;
    }
    let tests = root.join("tools/server/tests");
    copy(&bench.staged.join("tools/server/tests"), &tests)?;
    fs::create_dir_all(tests.join("tmp")).map_err(Error::file("make", &tests))?;
    let models = root.join("models");
    std::os::unix::fs::symlink(bench.staged.join("models"), &models)
        .map_err(Error::file("make", &models))?;
    Ok(tests)
}

/// A port of the loopback interface that is free just now.
pub fn free_port() -> Result<u16> {
    let taken = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    taken.map(|address| address.port()).map_err(|error| {
        Error::wrong(
            format!("no free port on 127.0.0.1: {error}"),
            "check that the loopback interface is up (`ip link show lo`)",
        )
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::file("make", to))?;
    for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
        let entry = entry.map_err(Error::file("list", from))?;
        let (source, place) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &place)?;
        } else {
            fs::copy(&source, &place).map_err(Error::file("copy", &source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        assert!(TcpListener::bind(("127.0.0.1", free_port().unwrap())).is_ok());
    }

    #[test]
    fn folders_are_copied_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/c.py"), "pass").unwrap();
        copy(&dir.path().join("a"), &dir.path().join("copy")).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("copy/b/c.py")).unwrap(),
            "pass"
        );
    }
}
