//! `rolling-kv doctor`.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use common::{program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

fn report() -> Value {
    let output = run(&["doctor", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn the_text_ends_with_the_verdict() {
    let output = run(&["doctor"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text.lines().last(),
        Some("verdict: ok, models can run here"),
        "{text}"
    );
    for part in [
        "Versions",
        "CPU: ",
        "Devices",
        "Libraries loaded",
        "Memory",
        "Tools",
        "safe because",
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn the_report_names_what_was_built_and_loaded() {
    let report = report();
    assert_eq!(report["verdict"], "ok");
    assert_eq!(report["problems"], Value::Array(vec![]));
    let stamp = report["versions"]["stamp"].as_str().unwrap();
    assert!(stamp.contains("patches"), "{stamp}");
    assert!(
        report["versions"]["patches"]
            .as_array()
            .unwrap()
            .iter()
            .any(|patch| patch == "build/abi-marker.patch")
    );
    let libraries = report["libraries"].as_array().unwrap();
    for wanted in ["libllama", "libggml-base", "libggml-cpu"] {
        assert!(
            libraries
                .iter()
                .any(|path| path.as_str().unwrap().contains(wanted)),
            "{libraries:?}"
        );
    }
    assert!(
        report["devices"]
            .as_array()
            .unwrap()
            .iter()
            .any(|device| device["kind"] == "cpu")
    );
    assert!(report["memory"]["total_bytes"].as_u64().unwrap() > 0);
    assert!(
        report["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "python3")
    );
}

#[test]
fn every_reported_feature_was_tried_and_the_module_uses_only_what_works() {
    let report = report();
    let features = report["cpu"]["features"].as_array().unwrap();
    assert!(!features.is_empty());
    assert_eq!(report["cpu"]["control"], "traps (SIGILL)");
    for feature in features {
        let finding = feature["finding"].as_str().unwrap();
        assert!(!finding.starts_with("unclear"), "{feature}");
        assert_ne!(finding, "wrong result", "{feature}");
    }
    assert_eq!(report["module"]["safe"], true);
    assert!(
        report["module"]["path"]
            .as_str()
            .unwrap()
            .contains("libggml-cpu")
    );
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_the_processor_reports_is_what_is_tried() {
    let report = report();
    let works = |name: &str| {
        let features = report["cpu"]["features"].as_array().unwrap();
        features
            .iter()
            .find(|feature| feature["name"] == name)
            .unwrap()["finding"]
            == "works"
    };
    assert_eq!(works("sse4.2"), is_x86_feature_detected!("sse4.2"));
    assert_eq!(works("avx2"), is_x86_feature_detected!("avx2"));
    assert_eq!(works("fma"), is_x86_feature_detected!("fma"));
}

#[test]
fn an_illegal_instruction_kills_only_the_child_that_tries_it() {
    let output = run(&["doctor", "--try", "control"]);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGILL),
        "{}",
        output.status
    );
}

#[test]
fn a_folder_without_modules_is_a_problem_and_the_rest_is_still_reported() {
    let empty = TempDir::new().unwrap();
    let output = program()
        .arg("doctor")
        .env("ROLLING_KV_LIB_DIR", empty.path())
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("problem: ") && text.contains(empty.path().to_str().unwrap()),
        "{text}"
    );
    assert!(text.contains("Memory"), "{text}");
    assert_eq!(text.lines().last(), Some("verdict: 1 problem"), "{text}");
}

#[test]
fn without_python_there_is_a_note_and_no_problem() {
    let empty = TempDir::new().unwrap();
    let output = program()
        .arg("doctor")
        .env("PATH", empty.path())
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("note: `rolling-kv fetch` needs python3"),
        "{text}"
    );
}

#[test]
fn a_cuda_module_of_another_build_is_found_and_named() {
    let report = report();
    let module = PathBuf::from(report["module"]["path"].as_str().unwrap());
    let folder = TempDir::new().unwrap();
    symlink(&module, folder.path().join(module.file_name().unwrap())).unwrap();
    fs::write(
        folder.path().join("a.c"),
        "const char rkv_cuda_stamp[] = \"llama.cpp of yesterday\";\n",
    )
    .unwrap();
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "libggml-cuda.so", "a.c"])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(cc.success());
    let output = program()
        .args(["doctor", "--json"])
        .env("ROLLING_KV_LIB_DIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["cuda_modules"][0]["stamp"], "llama.cpp of yesterday");
    assert_eq!(report["cuda_modules"][0]["loaded"], false);
    let problems = report["problems"].as_array().unwrap();
    let named = problems[0].as_str().unwrap();
    for part in [
        "libggml-cuda.so",
        "llama.cpp of yesterday",
        "cargo xtask cuda build",
    ] {
        assert!(named.contains(part), "no {part:?} in: {named}");
    }
}

#[test]
fn the_driver_of_cards_is_asked_and_its_absence_is_no_problem() {
    let report = report();
    let cuda = &report["cuda"];
    let cards = cuda["cards"].as_array().expect("a list of cards");
    assert_eq!(cards.is_empty(), cuda["reason"].is_string(), "{cuda}");
}
