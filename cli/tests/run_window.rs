//! `rolling-kv run` with most of the cache in host memory.

mod common;

use std::path::Path;
use std::process::Output;

use common::{assert_fails, model_for_one_thread, program, run, stderr, stdout};
use serde_json::Value;

/// About 330 tokens, so that two tiles of 128 cells are full and a third is begun.
fn prompt() -> String {
    let lines: String = (1..=28)
        .map(|day| {
            format!(
                "Day {day}: the boat carried {} boxes of tea. ",
                day * 7 % 50
            )
        })
        .collect();
    format!("{lines}Day 29: the boat carried")
}

fn with(model: &Path, options: &[&str]) -> Output {
    let mut command = program();
    command
        .args(["run", "--threads", "1", "--temp", "0", "-n", "12", "-p"])
        .args([&prompt(), "--model"])
        .arg(model)
        .args(options);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

fn json(model: &Path, options: &[&str]) -> Value {
    let mut all = options.to_vec();
    all.push("--json");
    serde_json::from_slice(&with(model, &all).stdout).expect("one JSON object")
}

#[test]
fn a_window_changes_where_the_cache_lies_and_not_the_text() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let resident = json(&model, &["--order", "tiled"]);
    let spilled = json(&model, &["--order", "tiled", "--window-cells", "128"]);
    assert_eq!(resident["tokens"], spilled["tokens"]);
    assert_eq!(resident["text"], spilled["text"]);

    let number = |run: &Value, name: &str| run["residency"][name].as_u64().expect(name);
    assert_eq!(resident["residency"]["order"], "tiled");
    assert_eq!(number(&resident, "host_bytes"), 0);
    assert_eq!(number(&resident, "tiles_tail"), 0);
    assert_eq!(
        number(&resident, "window_cells_min"),
        number(&resident, "kv_cells")
    );
    assert_eq!(number(&spilled, "window_cells_max"), 128);
    assert_eq!(number(&spilled, "layers"), 30);
    assert_eq!(number(&spilled, "layers_with_tail"), 30);
    assert_eq!(
        number(&spilled, "device_bytes") * number(&spilled, "kv_cells"),
        number(&resident, "device_bytes") * 128
    );
    assert_eq!(
        number(&spilled, "device_bytes") + number(&spilled, "host_bytes"),
        number(&resident, "device_bytes")
    );
    for counter in [
        "tiled_nodes",
        "tiles_tail",
        "partials_merged",
        "tail_bytes_read",
    ] {
        assert!(number(&spilled, counter) > 0, "{counter}");
    }
}

#[test]
fn a_device_that_brings_tiles_says_what_it_chose_or_was_asked_for_and_changes_no_token() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let device = ["--device", "sim:mem=512MiB,link=16GB/s,latency=1us"];
    let spill = ["--order", "tiled", "--window-cells", "128"];
    let resident = json(&model, &["--order", "tiled"]);
    assert!(resident.get("staging").is_none(), "{resident}");
    let chosen = json(&model, &[&device[..], &spill].concat());
    let asked = [
        "--tail-engine",
        "stream",
        "--schedule",
        "op",
        "--ring-depth",
        "3",
        "--copy-cells",
        "300",
    ];
    let asked = json(&model, &[&device[..], &spill, &asked].concat());
    for run in [&chosen, &asked] {
        assert_eq!(run["tokens"], resident["tokens"]);
        for counter in ["bytes", "steps", "device_bytes", "tiles_late"] {
            assert!(
                run["staging"][counter].as_u64() > Some(0),
                "{counter}: {run}"
            );
        }
    }
    assert!(chosen["staging"]["tiles_early"].as_u64() > Some(0));
    assert!(chosen["staging"]["link_bytes_per_s"].as_f64() > Some(1e9));
    assert_eq!(asked["staging"]["tiles_early"], 0);
    assert_eq!(asked["staging"]["ring_depth"], 3);
    assert_eq!(asked["staging"]["copy_cells"], 256);
    assert_eq!(asked["staging"]["host_tiles"], 0);
}

#[test]
fn a_host_that_attends_to_the_tail_is_told_of_and_changes_no_token() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let spill = ["--order", "tiled", "--window-cells", "128"];
    let resident = json(&model, &["--order", "tiled"]);
    let device = ["--device", "sim:mem=512MiB,link=1GB/s,latency=1us"];
    for engine in ["host", "hybrid"] {
        let engine = ["--tail-engine", engine, "--tail-threads", "1"];
        let found = json(&model, &[&device[..], &spill, &engine].concat());
        assert_eq!(found["tokens"], resident["tokens"], "{engine:?}");
        let number = |of: &str, name: &str| found[of][name].as_u64().expect(name);
        let tiles = number("residency", "tiles_host");
        assert!(tiles > 0 && tiles == number("staging", "host_tiles"));
        assert!(number("residency", "host_bytes_read") > number("staging", "host_bytes_up"));
        assert!(found["staging"]["host_bytes_per_s"].as_f64() > Some(0.0));
    }
}

#[test]
fn the_residency_is_a_line_of_standard_error() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let output = with(
        &model,
        &["--window-cells", "200", "--resident-layers", "0-3,29"],
    );
    let lines = stderr(&output);
    for part in [
        "window 128 to 512 of 512 cells",
        "25 of 30 layers with a tail",
        "order auto",
        "on the device",
        "in host memory",
        "from the tail",
    ] {
        assert!(lines.contains(part), "no {part:?} in: {lines}");
    }
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(!stdout(&output).contains("window"));
}

#[test]
fn without_an_option_for_it_nothing_is_said_of_the_cache() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    assert!(json(&model, &[]).get("residency").is_none());
    assert!(!stderr(&with(&model, &[])).contains("window"));
}

#[test]
fn a_target_of_device_memory_gives_the_window_that_fits_it() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    // 512 cells of SmolLM2 in f16 are 11.25 MiB.
    let found = json(&model, &["--vram-target-mib", "6", "--order", "tiled"]);
    let residency = &found["residency"];
    let bytes = residency["device_bytes"].as_u64().unwrap();
    assert!(bytes > 4 << 20 && bytes <= 6 << 20, "{residency}");
    assert!(residency["tiles_tail"].as_u64().unwrap() > 0, "{residency}");
}

#[test]
fn a_smaller_tile_is_used() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let found = json(&model, &["--window-cells", "96", "--tile-cells", "32"]);
    assert_eq!(found["residency"]["tile_cells"], 32);
    assert_eq!(found["residency"]["window_cells_max"], 96);
}

#[test]
fn a_window_without_flash_attention_is_refused_with_the_way_out() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let mut command = program();
    command
        .args([
            "run",
            "-p",
            "x",
            "--window-cells",
            "128",
            "--flash-attn",
            "off",
            "-m",
        ])
        .arg(&*model);
    assert_fails(&command.output().unwrap(), 2, &["window", "flash"]);
}

#[test]
fn a_layer_that_the_model_does_not_have_is_refused_with_those_it_has() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let mut command = program();
    command
        .args([
            "run",
            "-p",
            "x",
            "--window-cells",
            "128",
            "--resident-layers",
            "30",
            "-m",
        ])
        .arg(&*model);
    assert_fails(&command.output().unwrap(), 2, &["layer 30", "0 to 29"]);
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    for (option, value, word) in [
        ("--window-cells", "many", "auto"),
        ("--window-cells", "-1", "auto"),
        ("--vram-target-mib", "0", "1"),
        ("--resident-layers", "4-1", "0-4"),
        ("--order", "fast", "tiled"),
        ("--tile-cells", "100", "multiple of 32"),
        ("--schedule", "late", "ring"),
        ("--ring-depth", "0", "1"),
        ("--copy-cells", "0", "1"),
    ] {
        let output = run(&["run", "-m", "x", "-p", "y", option, value]);
        assert_fails(&output, 2, &[option, word]);
    }
    let output = run(&[
        "run",
        "-m",
        "x",
        "-p",
        "y",
        "--window-cells",
        "1",
        "--vram-target-mib",
        "1",
    ]);
    assert_fails(&output, 2, &["--window-cells", "--vram-target-mib"]);
}

#[test]
fn local_layers_are_those_of_the_gates_file_and_counted() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("the file is written");
        file.display().to_string()
    };
    let accepted = write(
        "budget.json",
        r#"{"accepted":{"layers":[11,13],"cells":96,"first":4,"n_layer":30}}"#,
    );
    let options = ["--order", "tiled", "--window-cells", "128"];
    let local = json(
        &model,
        &[&options[..], &["--local-file", &accepted, "--batch", "64"]].concat(),
    );
    assert_eq!(local["residency"]["layers_local"], 2);
    assert_eq!(local["residency"]["layers_with_tail"], 28);

    let foreign = write(
        "foreign.json",
        r#"{"accepted":{"layers":[1],"cells":96,"first":4,"n_layer":48}}"#,
    );
    let none = write("none.json", r#"{"accepted":null}"#);
    for (file, words) in [
        (foreign.as_str(), &["48 layers", "30"][..]),
        (&none, &["accepted none", "next: "]),
        ("/missing.json", &["/missing.json", "--local-file"]),
    ] {
        let mut command = program();
        let ended = command
            .args(["run", "-p", "x", "-n", "1", "--local-file", file, "-m"])
            .arg(&*model)
            .output()
            .unwrap();
        assert_fails(&ended, 2, words);
    }
}
