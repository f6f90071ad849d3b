//! `rolling-kv gate cliff` as a program. Its device's time is reckoned, so every figure is the same on every machine.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{assert_fails, found, model_for_one_thread, program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// The gate at a size of a few seconds, in a folder for what it writes.
fn gate(model: &Path, folder: &Path, options: &[&str]) -> (Output, Value) {
    let mut command = program();
    command
        .args(["gate", "cliff", "--ctx", "1280", "--points", "4"])
        .args(["--decoded", "6", "--copy-cells", "256"])
        .args(["--device", "sim:link=2GB/s,threads=1", "--model"])
        .arg(model)
        .arg("--plot")
        .arg(folder.join("cliff.svg"))
        .args(options);
    found(command, &folder.join("cliff.json"))
}

#[test]
fn the_ring_takes_the_longer_of_the_two_and_the_op_schedule_their_sum() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let (output, json) = gate(&model, folder.path(), &[]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.ends_with("PASS\n"), "{table}");
    for word in [
        "tail MiB",
        "ring/max",
        "op/sum",
        "the ring hides a tail of up to",
    ] {
        assert!(table.contains(word), "no {word:?} in: {table}");
    }
    assert_eq!(json["gate"], "cliff");
    assert_eq!(json["verdict"], "pass");
    let points = json["metrics"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 5);
    let number = |point: &Value, name: &str| point[name].as_f64().expect(name);
    assert_eq!(number(&points[0], "tail_bytes"), 0.0);
    let last = &points[4];
    assert_eq!(last["window_cells"], 0);
    // 30 layers of 1275 rows of 768 bytes, but for the rows that are decoded.
    assert!((number(last, "tail_bytes") / (30.0 * 1275.0 * 768.0) - 1.0).abs() < 0.01);
    assert!(
        number(last, "copy_ms") > number(last, "compute_ms"),
        "{last}"
    );
    assert!(
        json["metrics"]["hidden_bytes"].as_f64().unwrap() > 0.0,
        "{table}"
    );

    let svg = fs::read_to_string(folder.path().join("cliff.svg")).unwrap();
    for word in [
        "<svg",
        "op schedule",
        "ring",
        "max(compute, copy)",
        "MiB",
        "ms",
        "hidden",
    ] {
        assert!(svg.contains(word), "no {word:?} in the picture");
    }
    assert!(stderr(&output).is_empty() || !stderr(&output).contains("error"));
}

/// What the gate is for: a ring that cannot run ahead is not the ring.
#[test]
fn a_ring_of_one_slot_fails() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let (output, json) = gate(&model, folder.path(), &["--ring-depth", "1"]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{table}{}", stderr(&output));
    assert!(
        table.contains("FAILED: ring over max(compute, copy)"),
        "{table}"
    );
    assert!(table.ends_with("FAIL\n"), "{table}");
    assert_eq!(json["verdict"], "fail");
}

#[test]
fn what_the_command_line_cannot_mean_is_refused() {
    for (option, value, word) in [
        ("--device", "cuda", "sim"),
        ("--points", "0", "1"),
        ("--copy-cells", "33", "multiple of 32"),
        ("--ring-depth", "0", "1"),
        ("--decoded", "2", "3"),
    ] {
        let output = run(&["gate", "cliff", "-m", "x", option, value]);
        assert_fails(&output, 2, &[option, word]);
    }
}
