//! `rolling-kv gate engines` as a program. Its device's time is reckoned, so every figure is the same on every machine.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{alone, assert_fails, found, option, program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// A size at which two layers and sixteen tiles are enough for what theory says.
const SIZE: [&str; 14] = [
    "--ctx",
    "512",
    "--tile-cells",
    "32",
    "--copy-cells",
    "32",
    "--host-rate",
    "100MB/s",
    "--tail-percent",
    "100",
    "--threads",
    "1",
    "--device",
    "sim:latency=1us",
];

/// The gate on a tiny model, in a folder for what it writes.
fn gate(folder: &Path, links: &str, options: &[&str]) -> (Output, Value) {
    let mut command = program();
    command
        .args(["gate", "engines", "-m", "tiny:llama", "--links", links])
        .args(SIZE)
        .arg("--plot")
        .arg(folder.join("found.svg"))
        .args(options);
    found(command, &folder.join("found.json"))
}

#[track_caller]
fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name}: {value}"))
}

#[test]
fn every_engine_takes_what_theory_says_behind_every_link() {
    let _turn = alone();
    let folder = TempDir::new().unwrap();
    let (output, json) = gate(folder.path(), "40MB/s,60MB/s", &[]);
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{table}{}", stderr(&output));
    assert!(table.ends_with("PASS\n"), "{table}");
    for word in ["link 0.04 GB/s", "link 0.06 GB/s", "over bound", "reckoned"] {
        assert!(table.contains(word), "no {word:?} in: {table}");
    }
    assert_eq!(json["engine"], "stream, host, hybrid and auto");
    let links = json["metrics"]["links"].as_array().unwrap();
    assert_eq!(links.len(), 2);
    for link in links {
        let points = link["points"].as_array().unwrap();
        assert_eq!(points.len(), 1);
        let point = &points[0];
        let tail = number(point, "tail_bytes");
        let rate = number(&link["rates"], "link_bytes_per_s");
        assert!((number(point, "link_ms") - tail / rate * 1e3).abs() < 1e-9);
        // Each engine moves what it should, and nothing else.
        let bytes = |engine: &str, what: &str| number(&point[engine], what) / tail;
        assert_eq!(bytes("stream", "host_bytes"), 0.0);
        assert_eq!(bytes("host", "link_bytes"), 0.0);
        let share = bytes("hybrid", "host_bytes");
        assert!(0.2 < share && share < 0.8, "{point}");
        assert!((share + bytes("hybrid", "link_bytes") - 1.0).abs() < 0.05);
        let ms = |engine: &str| number(&point[engine], "ms");
        assert!(ms("hybrid") < 0.8 * ms("host") && ms("hybrid") < 0.8 * ms("stream"));
    }
    let svg = fs::read_to_string(folder.path().join("found.svg")).unwrap();
    for word in ["<svg", "stream", "host", "hybrid", "auto", "bound", "MiB"] {
        assert!(svg.contains(word), "no {word:?} in the picture");
    }
}

/// One link is measured by the process itself; what it finds is what one of several finds.
#[test]
fn a_link_alone_gives_what_it_gives_among_others() {
    let _turn = alone();
    let folder = TempDir::new().unwrap();
    let (output, alone) = gate(folder.path(), "40MB/s", &[]);
    let device = option(&stdout(&output), "device");
    assert!(device.ends_with("link=40MB/s,hostbw=100MB/s"), "{device}");
    let (_, both) = gate(folder.path(), "40MB/s,60MB/s", &[]);
    assert_eq!(
        alone["metrics"]["links"][0], both["metrics"]["links"][0],
        "the text was read on another device"
    );
}

#[test]
fn every_fault_is_noticed() {
    let _turn = alone();
    for (fault, failed) in [
        ("host-early", "other bits"),
        ("host-unwaited", "other bits"),
        ("half-rates", "hybrid over (C + T/H)"),
    ] {
        let folder = TempDir::new().unwrap();
        let (output, json) = gate(folder.path(), "40MB/s,60MB/s", &["--inject", fault]);
        let table = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{table}{}", stderr(&output));
        let line = table.lines().find(|line| line.contains(failed));
        assert!(
            line.is_some_and(|line| line.starts_with("FAILED")),
            "{table}"
        );
        assert!(table.ends_with("FAIL\n"), "{table}");
        assert_eq!(json["inject"], fault);
    }
}

#[test]
fn what_one_process_cannot_do_is_said_by_it_and_by_the_other() {
    let _turn = alone();
    let output = run(&[
        &["gate", "engines", "-m", "tiny:llama"][..],
        &SIZE[..12],
        &["--links", "40MB/s,60MB/s", "--device", "sim:mem=1MiB"],
    ]
    .concat());
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.matches("error: ").count(), 2, "{text}");
    assert!(
        text.contains("a link of 40MB/s") && text.contains("next: "),
        "{text}"
    );
}

#[test]
fn what_the_command_line_cannot_mean_is_refused() {
    for (option, value, word) in [
        ("--device", "cuda", "sim"),
        ("--links", "fast", "6.4GB/s"),
        ("--links", "1GB/s,0GB/s", "1MB/s"),
        ("--host-rate", "16", "bandwidth"),
        ("--tail-percent", "0", "1"),
        ("--tail-percent", "101", "100"),
        ("--tile-cells", "33", "multiple of 32"),
        ("--settling", "0", "2"),
        ("--inject", "stale", "host-early"),
    ] {
        let output = run(&["gate", "engines", "-m", "x", option, value]);
        assert_fails(&output, 2, &[option, word]);
    }
    for device in ["sim:link=1GB/s", "sim:hostbw=1GB/s"] {
        let output = run(&["gate", "engines", "-m", "tiny:llama", "--device", device]);
        assert_fails(&output, 2, &["--links", "--host-rate", "next: "]);
    }
}
