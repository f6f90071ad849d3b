//! `rolling-kv gate shift` as a program.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{assert_fails, found, model_for_one_thread, option, program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

fn gate(model: &Path, folder: &Path, options: &[&str]) -> (Output, Value) {
    let mut command = program();
    command
        .args(["gate", "shift", "--threads", "1", "--model"])
        .arg(model)
        .arg("--plot")
        .arg(folder.join("shift.svg"))
        .args(options);
    found(command, &folder.join("shift.json"))
}

#[test]
fn moved_keys_are_as_close_as_roundings_allow_and_a_misplaced_one_is_noticed() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let (output, json) = gate(&model, folder.path(), &["--most", "17"]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.ends_with("PASS\n"), "{table}");
    assert_eq!(json["gate"], "shift");
    assert_eq!(json["verdict"], "pass");
    let points = json["metrics"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 1, "one point reaches no higher: {points:?}");
    for point in points {
        let number = |name: &str| point[name].as_f64().expect(name);
        assert!(
            number("f16") > 0.0 && number("f16") < number("q8_0"),
            "{point}"
        );
        assert!(number("f32_stock") < number("f16"), "{point}");
    }
    // Quantised keys are spread over a Hadamard matrix; were it undone by another one, they would be no keys at all.
    assert!(json["metrics"]["q8_0_stored"].as_f64().unwrap() < 0.02);
    let picture = fs::read_to_string(folder.path().join("shift.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("f16, rolling-kv"));

    let (output, json) = gate(
        &model,
        folder.path(),
        &["--most", "17", "--inject", "misplace"],
    );
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{table}{}", stderr(&output));
    assert!(table.ends_with("FAIL\n"), "{table}");
    assert_eq!(option(&table, "inject"), "misplace");
    assert_eq!(json["inject"], "misplace");
}

#[test]
fn what_cannot_be_done_is_said_before_the_work() {
    for (options, word) in [
        (&["--tokens", "65", "-m", "smollm2"][..], "multiple of 64"),
        (&["-m", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
    ] {
        let output = run(&[&["gate", "shift"], options].concat());
        assert_fails(&output, 2, &[word]);
    }
}
