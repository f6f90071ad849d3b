//! `rolling-kv gate logit-equiv` as a program: what it prints and writes, and how it ends.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{assert_fails, model, option, program, run, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A size at which the prompt fills several tiles of the tail.
const SMALL: &str = "--ctx 512 --window-cells 128 --tile-cells 64 --threads 1";

/// A size that is enough for a fault to be noticed.
const TINY: &str = "--ctx 256 --window-cells 64 --tile-cells 32 --threads 1";

fn gate(model: &Path, options: &[&str]) -> Output {
    let mut command = program();
    command
        .args(["gate", "logit-equiv", "--model"])
        .arg(model)
        .args(options);
    command.output().unwrap()
}

/// The gate at a size, with its JSON object.
fn found(model: &Path, size: &str, options: &[&str]) -> (Output, Value) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("found.json");
    let mut all: Vec<&str> = size.split(' ').collect();
    all.extend(["--json", file.to_str().unwrap()]);
    all.extend(options);
    let output = gate(model, &all);
    let json = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (output, serde_json::from_slice(&json).unwrap())
}

/// The words of the row that starts with `name`, behind the name.
#[track_caller]
fn row(table: &str, name: &str) -> Vec<String> {
    let row = table
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no row {name:?} in: {table}"));
    row.split_whitespace().map(str::to_owned).collect()
}

/// The row that a comparison of the JSON object makes.
fn row_of(found: &Value) -> Vec<String> {
    let number = |name: &str| found[name].as_f64().expect(name);
    vec![
        found["positions"].to_string(),
        if found["bits_equal"] == true {
            "equal"
        } else {
            "differ"
        }
        .to_owned(),
        format!("{:.3e}", number("max_abs")),
        format!("{:.3e}", number("nmse")),
        format!("{:.3e}", number("kld_mean")),
        format!("{:.3e}", number("kld_p99")),
        format!("{:.3e}", number("kld_max")),
        format!("{:.2}%", 100.0 * number("top1")),
        format!("{:.2}%", 100.0 * number("top5")),
    ]
}

#[test]
fn a_spilled_cache_passes_and_the_table_and_the_json_say_the_same() {
    let Some(model) = model() else {
        return;
    };
    let (output, json) = found(&model, SMALL, &[]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.ends_with("PASS\n"), "{table}");
    assert_eq!(json["gate"], "logit-equiv");
    assert_eq!(json["verdict"], "pass");
    assert_eq!(json["n_ctx"], 512);
    assert_eq!(json["window_cells"], json!([128]));
    assert_eq!(json["inject"], Value::Null);
    assert_eq!(json["model"], model.to_str().unwrap());
    for word in [
        "positions",
        "bits",
        "max |dlogit|",
        "NMSE",
        "KLD mean",
        "KLD max",
        "top-1",
    ] {
        assert!(table.contains(word), "no {word:?} in: {table}");
    }
    let metrics = &json["metrics"];
    let spilled = &metrics["spilled"][0];
    for (name, found) in [
        ("stock against stock", &metrics["stock_vs_stock"]),
        ("resident against stock", &metrics["resident_vs_stock"]),
        ("window 128 against stock", &spilled["vs_stock"]),
        ("window 128 against resident", &spilled["vs_resident"]),
    ] {
        assert_eq!(row(&table, name), row_of(found), "{name}");
    }
    let equal = &spilled["vs_resident"];
    assert_eq!(equal["bits_equal"], true);
    assert_eq!(equal["max_abs"], 0.0);
    assert_eq!(equal["top1"], 1.0);
    assert!(spilled["tiles_tail"].as_u64().unwrap() > 0);
}

/// The fault turns the gate red, and the lines say for which reason. The others are in `cargo xtask gates --full`, and below the program in
/// tests/residency_faults.rs.
#[track_caller]
fn caught(fault: &str) {
    let Some(model) = model() else {
        return;
    };
    let (output, json) = found(&model, TINY, &["--inject", fault]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{table}{}", stderr(&output));
    assert!(table.ends_with("FAIL\n"), "{table}");
    assert_eq!(option(&table, "inject"), fault);
    assert!(
        table.contains("FAILED: spilled and resident have the same bits"),
        "{table}"
    );
    assert_eq!(json["verdict"], "fail");
    assert_eq!(json["inject"], fault);
    assert_eq!(row(&table, "window 64 against resident")[1], "differ");
    assert_eq!(
        json["metrics"]["spilled"][0]["vs_resident"]["bits_equal"],
        false
    );
}

#[test]
fn a_flipped_byte_of_the_tail_fails() {
    caught("flip");
}

/// The gate could not run: neither a pass nor a failure.
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

#[test]
fn a_window_that_holds_the_context_cannot_be_judged() {
    let Some(model) = model() else {
        return;
    };
    for window in ["512", "4096"] {
        let output = gate(&model, &["--ctx", "512", "--window-cells", window]);
        could_not_run(&output, &[window, "512", "nothing would spill"]);
    }
}

#[test]
fn a_context_without_room_for_the_positions_cannot_be_judged() {
    let Some(model) = model() else {
        return;
    };
    let output = gate(&model, &["--ctx", "64", "--window-cells", "32"]);
    could_not_run(&output, &["--ctx 64", "at least"]);
}

#[test]
fn a_text_that_is_too_short_is_named_with_both_numbers() {
    let Some(model) = model() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("short.txt");
    fs::write(&text, "Only a few words.").unwrap();
    let mut options: Vec<&str> = SMALL.split(' ').collect();
    options.extend(["--text", text.to_str().unwrap()]);
    could_not_run(&gate(&model, &options), &["512", "longer text"]);
}

#[test]
fn a_cache_that_cannot_have_a_window_is_refused_before_anything_is_computed() {
    let Some(model) = model() else {
        return;
    };
    let started = std::time::Instant::now();
    let output = gate(&model, &["--ctx", "8192", "--cache-type", "f32"]);
    could_not_run(&output, &["f32", "f16"]);
    // Computing 8192 tokens takes far longer on any machine of today.
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn what_the_command_line_cannot_mean_is_refused() {
    let missing = ["gate", "logit-equiv", "-m", "/no/such/model.gguf"];
    assert_fails(
        &run(&missing),
        2,
        &["/no/such/model.gguf", "rolling-kv fetch smollm2"],
    );
    for (option, value, word) in [
        ("--ctx", "0", "1"),
        ("--ctx", "few", "number"),
        ("--window-cells", "-1", "0"),
        ("--tile-cells", "33", "multiple of 32"),
        ("--inject", "swap", "stale"),
        ("--cache-type", "f8", "q8_0"),
        ("--threads", "0", "1"),
    ] {
        let output = run(&["gate", "logit-equiv", "-m", "x", option, value]);
        assert_fails(&output, 2, &[option, word]);
    }
}

#[test]
fn a_text_or_a_json_file_that_cannot_be_opened_is_named() {
    let Some(model) = model() else {
        return;
    };
    let output = gate(&model, &["--text", "/no/such/text"]);
    could_not_run(&output, &["/no/such/text", "--text"]);
    let output = gate(&model, &["--json", "/no/such/folder/found.json"]);
    could_not_run(&output, &["/no/such/folder/found.json", "--json"]);
}
