//! Ctrl-C while `rolling-kv run` works: it ends soon, says its timings and answers 130.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{hears_ctrl_c, model, press_ctrl_c, program};

/// Longer than any step that cannot be stopped halfway, much shorter than the work that is stopped.
const SOON: Duration = Duration::from_secs(10);

fn start(model: &Path, args: &[&str]) -> Child {
    let mut command = program();
    command
        .args(["run", "--temp", "0", "--threads", "1", "--model"])
        .arg(model)
        .args(args);
    hears_ctrl_c(&mut command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end, which must come soon; answers the exit code.
#[track_caller]
fn ends_soon(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if start.elapsed() > SOON {
            child.kill().unwrap();
            panic!("it goes on {SOON:?} after Ctrl-C");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads standard error up to a line that contains `sign`.
fn wait_for(stderr: &mut BufReader<ChildStderr>, sign: &str) {
    let mut line = String::new();
    while !line.contains(sign) {
        line.clear();
        assert!(
            stderr.read_line(&mut line).unwrap() > 0,
            "standard error ended without {sign:?}"
        );
    }
}

fn rest(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn generation_stops_with_the_text_so_far_and_the_timings() {
    let Some(model) = model() else { return };
    let mut child = start(&model, &["-p", "Once upon a time", "-n", "6000"]);
    let mut first = [0; 4];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    press_ctrl_c(&child);
    assert_eq!(ends_soon(&mut child), Some(130));
    let timings = rest(child.stderr.take().unwrap());
    assert!(
        timings.contains("generated: ") && timings.contains("stop: interrupted"),
        "{timings}"
    );
}

#[test]
fn json_is_written_also_when_interrupted() {
    let Some(model) = model() else { return };
    let mut child = start(
        &model,
        &["-p", "Once upon a time", "-n", "6000", "--json", "-v"],
    );
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for(&mut stderr, "llama_context");
    thread::sleep(Duration::from_millis(500));
    press_ctrl_c(&child);
    assert_eq!(ends_soon(&mut child), Some(130));
    let object: serde_json::Value =
        serde_json::from_str(&rest(child.stdout.take().unwrap())).unwrap();
    assert_eq!(object["stop_reason"], "interrupted");
    assert!(object["generated_tokens"].as_u64().unwrap() < 6000);
}

#[test]
fn prompt_processing_stops_within_a_ubatch() {
    let Some(model) = model() else { return };
    let prompt = "All work and no play makes Jack a dull boy. ".repeat(600);
    let mut child = start(
        &model,
        &[
            "-p", &prompt, "-n", "10", "-v", "--ubatch", "4096", "--batch", "4096",
        ],
    );
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for(&mut stderr, "llama_context");
    thread::sleep(Duration::from_millis(500));
    press_ctrl_c(&child);
    assert_eq!(ends_soon(&mut child), Some(130));
    assert_eq!(rest(child.stdout.take().unwrap()), "");
    let timings = rest(stderr);
    assert!(
        timings.contains("generated: 0 tokens") && timings.contains("stop: interrupted"),
        "{timings}"
    );
}

#[test]
fn two_presses_end_it_too() {
    let Some(model) = model() else { return };
    let mut child = start(&model, &["-p", "Once upon a time", "-n", "6000"]);
    let mut first = [0; 4];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    press_ctrl_c(&child);
    press_ctrl_c(&child);
    assert_eq!(ends_soon(&mut child), Some(130));
}
