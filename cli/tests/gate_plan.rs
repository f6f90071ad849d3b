//! `rolling-kv gate plan` as a program. Its device's time is reckoned, so every figure is the same on every machine.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{
    assert_fails, assert_self_contained, found, model_for_one_thread, program, run, stderr, stdout,
};
use serde_json::Value;
use tempfile::TempDir;

fn gate(model: &Path, folder: &Path, options: &[&str]) -> (Output, Value) {
    let mut command = program();
    command
        .args([
            "gate",
            "plan",
            "--ctx",
            "1280",
            "--points",
            "3",
            "--decoded",
            "5",
        ])
        .args(["--device", "sim:link=2GB/s,threads=1", "--model"])
        .arg(model)
        .args(options);
    found(command, &folder.join("plan.json"))
}

#[test]
fn predictions_are_near_and_those_from_rates_of_half_the_speed_are_not() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("plan.html");
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    let (output, json) = gate(
        &model,
        folder.path(),
        &["--html", page.to_str().unwrap(), "--results", kept],
    );
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(
        text.contains("measured: link 2.00 GB/s") && text.ends_with("PASS\n"),
        "{text}"
    );
    assert_eq!(
        (&json["gate"], &json["verdict"]),
        (&"plan".into(), &"pass".into())
    );
    let points = json["metrics"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 4 * 3);
    for point in points {
        let of = |name: &str| point[name].as_f64().expect(name);
        assert!(
            (of("predicted_ms") / of("measured_ms") - 1.0).abs() < 0.15,
            "{point}"
        );
        // What is planned to be read is what is moved or what the host reads, but for rows that are decoded and copies that came ahead
        // of another split.
        let read = of("moved_bytes") + of("host_bytes");
        assert!(
            (of("tail_bytes") - read).abs() < 0.1 * of("tail_bytes") + 1e6,
            "{point}"
        );
        if point["engine"] == "host" {
            assert!(of("moved_bytes") < 1e6, "{point}");
        }
    }
    let window = &json["metrics"]["window"];
    assert_eq!(window["planned_cells"], window["chosen_cells"]);
    assert_self_contained(&fs::read_to_string(&page).unwrap());

    let (output, json) = gate(&model, folder.path(), &["--inject", "halved"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("FAILED: predicted off measured"), "{text}");
    assert!(json["metrics"]["worst"].as_f64().unwrap() > 0.8, "{text}");
}

#[test]
fn what_cannot_be_checked_is_refused() {
    assert_fails(
        &run(&["gate", "plan", "-m", "tiny:llama"]),
        2,
        &["header", "next: "],
    );
    for (option, value, word) in [
        ("--device", "cuda", "sim"),
        ("--points", "0", "1"),
        ("--engines", "fast", "stream"),
    ] {
        assert_fails(
            &run(&["gate", "plan", "-m", "x", option, value]),
            2,
            &[option, word],
        );
    }
    let output = run(&["gate", "plan", "-m", "x", "--device", "sim:hostbw=fast"]);
    assert_fails(&output, 2, &["next: "]);
}
