//! What the gates keep and write: a run that was interrupted goes on, and a page needs nothing beside itself.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{
    alone, assert_fails, assert_self_contained, found, model_for_one_thread, program, run, stderr,
    stdout,
};
use serde_json::Value;
use tempfile::TempDir;

/// A gate and options at which it takes less than a second on a tiny model.
const GATES: [(&str, &str); 4] = [
    (
        "logit-equiv",
        "--ctx 256 --window-cells 128,64 --tile-cells 32 --threads 1",
    ),
    ("shift", "--most 300 --threads 1"),
    (
        "cliff",
        "--ctx 512 --points 2 --decoded 4 --copy-cells 128 --device sim:link=2GB/s,threads=1",
    ),
    (
        "engines",
        "--ctx 512 --tile-cells 32 --copy-cells 32 --links 40MB/s,50MB/s --host-rate 100MB/s --tail-percent 100 --threads 1",
    ),
];

/// Runs a gate on a tiny model, with a folder for what is kept.
fn gate(name: &str, options: &str, folder: &Path, more: &[&str]) -> (Output, Value) {
    let mut command = program();
    command.args(["gate", name, "-m", "tiny:llama"]);
    command.args(options.split(' ')).args(more);
    command.arg("--results").arg(folder.join("kept"));
    found(command, &folder.join("found.json"))
}

#[test]
fn what_is_kept_gives_the_same_verdict_and_the_same_numbers() {
    let _turn = alone();
    for (name, options) in GATES {
        let folder = TempDir::new().unwrap();
        let (first, found) = gate(name, options, folder.path(), &[]);
        assert!(!stdout(&first).contains("there already"), "{name}");
        let (again, kept) = gate(name, options, folder.path(), &[]);
        let out = stdout(&again);
        assert!(out.contains("results were there already"), "{name}: {out}");
        assert_eq!(again.status.code(), first.status.code(), "{name}: {out}");
        assert_eq!(kept, found, "{name}");

        let mut command = program();
        command.args(["gate", name, "-m", "tiny:llama", "--seed", "2"]);
        command.args(options.split(' '));
        command.arg("--results").arg(folder.path().join("kept"));
        let other = command.output().unwrap();
        assert_eq!(other.status.code(), Some(2), "{name}");
        assert!(stderr(&other).contains("other options"), "{name}");
    }
}

#[test]
fn logits_that_are_damaged_or_gone_are_made_again_and_the_others_are_not() {
    let _turn = alone();
    let (name, options) = GATES[0];
    let folder = TempDir::new().unwrap();
    let (_, found) = gate(name, options, folder.path(), &[]);
    let file = |run: &str| folder.path().join("kept").join(format!("{run}.f32"));
    let runs = [
        "stock",
        "stock-again",
        "resident",
        "window-128",
        "window-64",
    ];
    let bytes = fs::read(file("stock")).unwrap();
    for run in runs {
        assert_eq!(fs::metadata(file(run)).unwrap().len(), bytes.len() as u64);
    }
    let logits = found["metrics"]["stock_vs_stock"]["positions"].as_u64();
    assert_eq!(bytes.len() as u64 % (4 * logits.unwrap()), 0);

    fs::remove_file(file("resident")).unwrap();
    let whole = fs::read(file("window-64")).unwrap();
    fs::write(file("window-64"), &whole[..whole.len() / 2]).unwrap();
    fs::write(file("window-128").with_extension("f32.part"), "half").unwrap();
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    fs::write(file("stock"), &flipped).unwrap();
    let times = || ["stock-again", "window-128"].map(|run| modified(&file(run)));
    let before = times();

    let (again, kept) = gate(name, options, folder.path(), &[]);
    let out = stdout(&again);
    assert!(
        out.contains("2 results were there already: stock-again; window-128\n"),
        "{out}"
    );
    assert!(
        out.contains("made again: resident; stock; window-64\n"),
        "{out}"
    );
    assert_eq!(again.status.code(), Some(0), "{out}");
    assert_eq!(kept, found);
    assert_eq!(times(), before, "what was there is left alone");
    assert_eq!(fs::read(file("stock")).unwrap(), bytes);
    assert_eq!(fs::read(file("window-64")).unwrap(), whole);
}

fn modified(path: &PathBuf) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn a_gate_that_was_killed_goes_on_with_the_run_that_was_not_complete() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let command = || {
        let mut command = program();
        command.args(["gate", "logit-equiv", "--ctx", "384", "--window-cells"]);
        command.args(["128", "--tile-cells", "64", "--threads", "1", "-m"]);
        command.arg(&*model).arg("--results").arg(&kept);
        command
    };
    let mut killed = command().stdout(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    let lines = || fs::read_to_string(kept.join("results.jsonl")).unwrap_or_default();
    while !lines().contains("stock") {
        assert!(killed.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(since.elapsed() < Duration::from_secs(300));
        sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();

    let output = command().output().unwrap();
    let out = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{}", stderr(&output));
    assert!(out.contains("results were there already: stock"), "{out}");
    for run in ["stock", "stock-again", "resident", "window-128"] {
        assert!(kept.join(format!("{run}.f32")).exists(), "{run}");
    }
}

#[test]
fn every_page_is_whole_and_needs_nothing_beside_itself() {
    let _turn = alone();
    let profile = ("profile", "--ctx 1492 --threads 1");
    for (name, options) in GATES.into_iter().chain([profile]) {
        let folder = TempDir::new().unwrap();
        let (html, plot) = (folder.path().join("page.html"), folder.path().join("p.svg"));
        let mut command = program();
        command.args((name != "profile").then_some("gate"));
        command.args([name, "-m", "tiny:llama"]);
        command.args(options.split(' '));
        command.arg("--html").arg(&html).arg("--plot").arg(&plot);
        let output = command.output().unwrap();
        let out = stdout(&output);
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{name}: {}", stderr(&output));
        let page = fs::read_to_string(&html).unwrap();
        assert_self_contained(&page);
        let picture = fs::read_to_string(&plot).unwrap();
        assert!(page.contains(picture.trim()), "{name}: the picture");
        assert!(page.contains("<td>model</td><td>tiny:llama</td>"), "{name}");
        assert!(page.contains("<td>seed</td><td>1</td>"), "{name}");
        if name != "profile" {
            let verdict = out.lines().last().unwrap();
            assert!(page.contains(&format!(">{verdict}</p>")), "{name}");
            assert!(page.contains("By which numbers it is judged"), "{name}");
        }
    }
}

#[test]
fn what_cannot_be_kept_is_said() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("kept");
    fs::write(&file, "old results").unwrap();
    let command = ["gate", "shift", "-m", "tiny:llama", "--threads", "1"];
    let output = run(&[&command[..], &["--results", file.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("--results") && text.contains("next: "),
        "{text}"
    );
}

/// A length that the model was not trained for: both numbers are named, and nothing is run.
#[test]
fn a_length_over_the_models_context_is_refused_with_both_numbers() {
    for (gate, words) in [
        (
            &["niah", "--lengths", "400"][..],
            &["528", "512", "--lengths"][..],
        ),
        (&["logit-equiv", "--ctx", "1024"], &["1024", "512", "--ctx"]),
        (&["cliff", "--ctx", "1024"], &["1024", "512", "--ctx"]),
        (&["engines", "--ctx", "1024"], &["1024", "512", "--ctx"]),
    ] {
        let output = run(&[&["gate"], gate, &["-m", "tiny:llama"]].concat());
        could_not_run(&output, words);
        assert!(stderr(&output).contains("was trained for"), "{gate:?}");
    }
}

#[test]
fn a_file_that_is_no_model_is_named_by_every_gate() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("model.gguf");
    fs::write(&file, "these are not weights").unwrap();
    for gate in rolling_kv_gates::GATES {
        let output = run(&["gate", gate, "-m", file.to_str().unwrap()]);
        could_not_run(&output, &["model.gguf"]);
    }
}

#[test]
fn an_empty_text_is_named_by_every_gate_that_reads_one() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("empty.txt");
    fs::write(&file, " \n\t").unwrap();
    for gate in ["niah", "logit-equiv"] {
        let options = ["-m", "tiny:llama", "--text", file.to_str().unwrap()];
        let output = run(&[&["gate", gate], &options[..]].concat());
        assert_fails(&output, 2, &["empty.txt", "is empty", "next: "]);
    }
}

/// A model that cannot do what it is asked with a resident cache: the spilled one is not even tried.
#[test]
fn a_model_that_cannot_do_the_task_resident_is_said_before_anything_spills() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let mut command = program();
    command.args(["gate", "niah", "--tasks", "niah_multikey_3", "--lengths"]);
    command.args(["512", "--depths", "50", "--threads", "1", "-m"]);
    command.arg(&*model).arg("--results").arg(&kept);
    let output = command.output().unwrap();
    could_not_run(&output, &["niah_multikey_3", "0.5 is the least", "next: "]);
    let lines = fs::read_to_string(kept.join("results.jsonl")).unwrap();
    assert!(lines.contains("resident") && !lines.contains("spilled"));
}

/// Neither a pass nor a failure.
#[track_caller]
fn could_not_run(output: &Output, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    let out = stdout(output);
    assert!(!out.contains("PASS") && !out.contains("FAIL"), "{out}");
}
