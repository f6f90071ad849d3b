//! `rolling-kv gate niah` as a program.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{
    assert_fails, assert_self_contained, model_for_one_thread, program, run, stderr, stdout,
};
use serde_json::Value;
use tempfile::TempDir;

fn gate(model: &Path, options: &[&str]) -> Output {
    let mut command = program();
    command
        .args(["gate", "niah", "--threads", "1", "--model"])
        .arg(model)
        .args(options);
    command.output().unwrap()
}

/// Two short questions: what needs no model to be known is in the tests of the gate itself.
const SHORT: [&str; 4] = ["--lengths", "320", "--depths", "0,border"];

#[test]
fn both_runs_say_the_same_and_the_page_and_the_json_hold_it() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let [json, html, results] = ["n.json", "n.html", "kept"].map(|name| folder.path().join(name));
    let paths: Vec<&str> = [&json, &html, &results]
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect();
    let files = [
        "--json",
        paths[0],
        "--html",
        paths[1],
        "--results",
        paths[2],
    ];
    let options = [&SHORT[..], &files].concat();
    let output = gate(&model, &options);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.ends_with("PASS\n"), "{table}");
    assert!(table.contains("1.00/1.00 ="), "{table}");
    let found: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(found["gate"], "niah");
    assert_eq!(found["verdict"], "pass");
    let asked = found["metrics"]["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2);
    for one in asked {
        assert!(one["spilled"]["tiles_tail"].as_u64().unwrap() > 0);
        assert_eq!(one["resident"]["tiles_tail"], 0);
        assert_eq!(one["resident"]["log_probs"], one["spilled"]["log_probs"]);
    }
    let page = fs::read_to_string(&html).unwrap();
    assert_self_contained(&page);
    assert!(page.contains("niah_single_1") && page.contains("1.00 / 1.00 ="));

    // What is there is not asked again, and gives the same verdict.
    let again = gate(&model, &options);
    assert!(stdout(&again).contains("4 results were there already"));
    assert_eq!(again.status.code(), Some(0));
    let other = [&options[..], &["--seed", "2"]].concat();
    assert_fails_after_the_options(&gate(&model, &other), "other options");
}

/// The options are printed first, whatever comes then.
#[track_caller]
fn assert_fails_after_the_options(output: &Output, word: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert!(stdout(output).starts_with("gate niah\n"));
    assert!(stderr(output).contains(word), "{}", stderr(output));
}

#[test]
fn a_stale_tile_is_noticed() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let output = gate(
        &model,
        &["--lengths", "320", "--depths", "0", "--inject", "stale"],
    );
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{table}{}", stderr(&output));
    assert!(
        table.ends_with("FAIL\n") && table.contains("first at"),
        "{table}"
    );
}

#[test]
fn what_cannot_be_asked_is_said() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, " \n").unwrap();
    for (options, word) in [
        (&["--tasks", "niah_single_9"][..], "niah_single_1"),
        (&["--depths", "120"], "percentage"),
        (&["--window-percent", "100"], "95"),
        (&["--html", "/nowhere/at/all.html"], "/nowhere/at/all.html"),
    ] {
        let output = run(&[&["gate", "niah", "-m", "smollm2"], options].concat());
        assert_fails(&output, 2, &[word]);
    }
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let output = gate(&model, &["--text", empty.to_str().unwrap()]);
    assert_fails(&output, 2, &["is empty"]);
    assert_fails_after_the_options(&gate(&model, &["--lengths", "20"]), "too short");
    let window = ["--lengths", "320", "--window-percent", "90"];
    assert_fails_after_the_options(&gate(&model, &window), "nothing would spill");
}
