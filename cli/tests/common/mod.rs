//! What the tests of the program share: running it, and finding a real model.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub const MODEL_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The program, with nothing to read and an environment that does not depend on who runs the test.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolling-kv"));
    command.stdin(Stdio::null()).env_remove("ROLLING_KV_LOG");
    command
}

/// Runs the program to its end.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    program().args(args).output().expect("the program starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a gate that writes this JSON file; what it printed, and the JSON.
#[track_caller]
pub fn found(mut gate: Command, json: &Path) -> (Output, serde_json::Value) {
    gate.arg("--json").arg(json);
    let output = gate.output().expect("the program starts");
    let text = std::fs::read(json).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (output, serde_json::from_slice(&text).expect("JSON"))
}

/// The value of an option, as the block says that a gate prints before anything else.
#[track_caller]
pub fn option(out: &str, name: &str) -> String {
    let line = out
        .lines()
        .take_while(|line| *line != "thresholds")
        .find_map(|line| line.strip_prefix("  ")?.strip_prefix(name));
    let value = line.filter(|value| value.starts_with(' '));
    let value = value.unwrap_or_else(|| panic!("no option {name:?} in: {out}"));
    value.trim_start().to_owned()
}

/// A page that a gate wrote reads nothing from anywhere: its only address is the name of SVG's elements, which nothing follows.
#[track_caller]
pub fn assert_self_contained(page: &str) {
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"),
        "not a whole page"
    );
    let rest = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for word in [
        "http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe",
    ] {
        assert!(!rest.to_lowercase().contains(word), "{word:?} in the page");
    }
}

/// The run ended with `code`, wrote nothing to standard output, and each of `words` to standard error.
#[track_caller]
pub fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(stdout(output), "");
    assert!(
        text.starts_with("error: ") || text.contains("\nerror: "),
        "{text}"
    );
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// The file of a real model, and the right to run it. Runs of several threads go one after the other, because threads of
/// several runs that share a few cores wait for each other without end.
pub struct Model {
    path: PathBuf,
    _turn: Turn,
}

#[expect(dead_code, reason = "a guard is held, not read")]
enum Turn {
    Alone(RwLockWriteGuard<'static, ()>),
    WithOthers(RwLockReadGuard<'static, ()>),
}

static TURN: RwLock<()> = RwLock::new(());

impl Deref for Model {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// The right to run a program of several threads on a model that is no file.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// SmolLM2, from `ROLLING_KV_TEST_MODEL` or the user's cache, for runs of any number of threads. Without it the caller
/// returns: the reason is printed, or, where `ROLLING_KV_REQUIRE_MODEL=1` is set, the test fails.
pub fn model() -> Option<Model> {
    model_path().map(|path| Model {
        path,
        _turn: Turn::Alone(alone()),
    })
}

/// The same, for runs of one thread, which do not wait for each other.
pub fn model_for_one_thread() -> Option<Model> {
    let turn = || Turn::WithOthers(TURN.read().unwrap_or_else(PoisonError::into_inner));
    model_path().map(|path| Model {
        path,
        _turn: turn(),
    })
}

fn model_path() -> Option<PathBuf> {
    let cached = || {
        let own = env::var_os("ROLLING_KV_CACHE_DIR").map(PathBuf::from);
        let xdg =
            || env::var_os("XDG_CACHE_HOME").map(|folder| Path::new(&folder).join("rolling-kv"));
        let home =
            || env::var_os("HOME").map(|folder| Path::new(&folder).join(".cache/rolling-kv"));
        own.or_else(xdg)
            .or_else(home)
            .map(|folder| folder.join("models").join(MODEL_FILE))
    };
    let path = env::var_os("ROLLING_KV_TEST_MODEL")
        .map(PathBuf::from)
        .or_else(cached)
        .filter(|path| path.is_file());
    if path.is_none() {
        let reason = "no SmolLM2: run `rolling-kv fetch smollm2` or set ROLLING_KV_TEST_MODEL";
        assert!(
            env::var_os("ROLLING_KV_REQUIRE_MODEL").is_none_or(|value| value != "1"),
            "{reason}"
        );
        println!("SKIP: {reason}");
    }
    path
}

/// Writes an executable shell script. A child process writes it: a file that this process has open for writing could
/// reach a program that another test starts at that moment, and could then not be executed.
pub fn write_script(path: &Path, text: &str) {
    let mut child = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("the script is written");
    assert!(child.wait().expect("sh ends").success());
}

/// Makes sure that the program hears Ctrl-C, also where the tests run in the background of a script, which ignores it.
pub fn hears_ctrl_c(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs in the child between fork and exec and only calls signal, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Presses Ctrl-C in the terminal of a program that is still running.
pub fn press_ctrl_c(child: &Child) {
    // SAFETY: kill only sends a signal; the child was not waited for yet, so the number is still its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
}
