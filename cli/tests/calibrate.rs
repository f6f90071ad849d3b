//! `rolling-kv calibrate`, and plans that use what it found.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{assert_fails, program, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// A device of 2 GiB behind a link of 2 GB/s, whose time is reckoned.
const DEVICE: &str = "sim:mem=2GiB,link=2GB/s,threads=1";

/// Calibrates the simulated device into a cache folder of its own.
fn calibrate(cache: &Path, options: &[&str]) -> Output {
    let mut command = program();
    command
        .env("ROLLING_KV_CACHE_DIR", cache)
        .args(["calibrate", "--threads", "1", "--repeats", "1"])
        .args(options);
    command.output().unwrap()
}

#[test]
fn a_reckoned_device_is_measured_as_it_was_set_and_kept_for_plans() {
    let cache = TempDir::new().unwrap();
    let shape = [
        "plan",
        "--shape",
        "layers=2,heads=4,kv-heads=2,head-dim=64,weights=20MB",
        "--ctx",
        "4096",
    ];
    let plan = |device: &str| {
        let mut command = program();
        command
            .env("ROLLING_KV_CACHE_DIR", cache.path())
            .args(shape)
            .args(["--device", device]);
        command.output().unwrap()
    };
    assert_fails(
        &plan(DEVICE),
        2,
        &["SIM0", "not measured yet", "rolling-kv calibrate"],
    );

    let output = calibrate(cache.path(), &["--device", DEVICE, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = |name: &str| json["rates"][name].as_f64().expect(name);
    let near = |name: &str, expected: f64, within: f64| {
        assert!(
            (rate(name) / expected - 1.0).abs() <= within,
            "{name}: {}",
            rate(name)
        );
    };
    near("to_device_pinned_bytes_per_s", 2e9, 0.001);
    near("to_host_pageable_bytes_per_s", 2e9, 0.001);
    near("link_latency_s", 10e-6, 0.01);
    near("device_launch_s", 10e-6, 0.01);
    near("device_memory_bytes_per_s", 400e9, 0.05);
    assert_eq!(json["reckoned"], true);
    assert_eq!(json["rates"]["host_kernel_bytes_per_s"][0][1], 20e9);
    // Link and host are reckoned apart, so that no memory limits both.
    assert_eq!(rate("host_read_bytes_per_s"), 0.0);

    let output = plan(DEVICE);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(
        text.contains("SIM0") && text.contains("fits: all 4096 cells"),
        "{text}"
    );
    // Another device is another file.
    assert_fails(&plan("sim:mem=2GiB,link=3GB/s"), 2, &["not measured yet"]);

    let folder = cache.path().join("calibrations");
    let kept: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let text = fs::read_to_string(&kept[0]).unwrap();
    fs::write(&kept[0], text.replace("\"cpu\": \"", "\"cpu\": \"Another ")).unwrap();
    assert_fails(
        &plan(DEVICE),
        2,
        &[
            "another machine",
            "CPU there: Another ",
            "here: ",
            "--rates",
        ],
    );
}

#[test]
fn a_host_alone_is_measured_and_shown_with_units_and_spread() {
    let cache = TempDir::new().unwrap();
    let out = cache.path().join("host.json");
    let output = calibrate(
        cache.path(),
        &["--host-only", "--out", out.to_str().unwrap()],
    );
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in [
        "host: ",
        "median",
        "best",
        "spread",
        "host memory",
        "host attention over q8_0",
        "GB/s",
        "kept in ",
    ] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    assert!(!text.contains("host to device"), "{text}");
    let json: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(json["machine"]["device"], Value::Null);
    let nowhere = calibrate(
        cache.path(),
        &["--host-only", "--out", "/proc/none/rates.json"],
    );
    assert_fails(&nowhere, 2, &["/proc/none", "next: "]);
}
