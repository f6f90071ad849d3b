//! `rolling-kv profile` as a program.

mod common;

use std::fs;

use common::{assert_fails, model_for_one_thread, program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn the_table_the_json_and_the_picture_say_where_attention_looks() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let [json, plot] = ["p.json", "p.svg"].map(|name| folder.path().join(name));
    let mut command = program();
    command
        .args(["profile", "--ctx", "300", "--threads", "1", "--model"])
        .arg(&*model)
        .arg("--json")
        .arg(&json)
        .arg("--plot")
        .arg(&plot);
    let output = command.output().unwrap();
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.contains("mean of all heads:"), "{table}");
    let found: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let heads = found["metrics"]["heads"].as_array().unwrap();
    assert_eq!(
        heads.len(),
        30 * 9,
        "SmolLM2 has 30 layers of 9 query heads"
    );
    for head in heads {
        let mass: f64 = head["mass"]
            .as_array()
            .unwrap()
            .iter()
            .map(|share| share.as_f64().unwrap())
            .sum();
        assert!((mass - 1.0).abs() < 1e-3, "{head}");
    }
    assert!(
        heads
            .iter()
            .any(|head| head["needle"].as_f64().unwrap() > 0.1),
        "some head looks at the needle"
    );
    assert!(fs::read_to_string(&plot).unwrap().starts_with("<svg"));
}

#[test]
fn what_cannot_be_measured_is_said() {
    for (options, word) in [
        (&["--depth", "120"][..], "percentage"),
        (&["--plot", "/nowhere/at/all.svg"], "/nowhere/at/all.svg"),
    ] {
        let output = run(&[&["profile", "-m", "smollm2"], options].concat());
        assert_fails(&output, 2, &[word]);
    }
}
