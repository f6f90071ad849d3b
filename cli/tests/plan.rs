//! `rolling-kv plan` as a program.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{assert_fails, model_for_one_thread, program, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// Rates that no machine has, so that every figure of a plan can be reckoned by hand.
const RATES: &str = r#"{
  "version": 1,
  "machine": { "cpu": "a CPU", "cores": 8, "memory_gib": 64,
               "device": { "name": "CARD0", "description": "a card", "memory_mib": 24576, "driver": "1" } },
  "threads": 8, "reckoned": false,
  "rates": { "to_device_pinned_bytes_per_s": 20e9, "to_device_pageable_bytes_per_s": 10e9, "to_host_pinned_bytes_per_s": 20e9,
             "to_host_pageable_bytes_per_s": 10e9, "link_latency_s": 0, "host_read_bytes_per_s": 40e9,
             "host_kernel_bytes_per_s": [["f16", 30e9], ["q8_0", 24e9]], "device_memory_bytes_per_s": 800e9,
             "device_attention_bytes_per_s": 0, "device_launch_s": 0, "device_flops": 50e12,
             "device_bytes": 25000000000, "host_bytes": 60000000000 },
  "measured": [], "warnings": []
}"#;

const SHAPE: &str = "layers=10,heads=16,kv-heads=8,head-dim=128,weights=8GB,params=14B,vocab=32000,embd=2048,ff=8192";

/// A folder that holds the rates, and its path.
fn rates() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rates.json");
    fs::write(&path, RATES).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn planned(options: &[&str]) -> (Output, Value) {
    let output = run(&[&["plan", "--json"], options].concat());
    let json = serde_json::from_slice(&output.stdout);
    let json = json.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (output, json)
}

#[test]
fn a_plan_prints_what_fits_what_it_takes_and_how_to_get_it() {
    let (_folder, rates) = rates();
    let output = run(&[
        "plan",
        "--shape",
        SHAPE,
        "--ctx",
        "65536",
        "--window-cells",
        "16384",
        "--rates",
        &rates,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "\
a model: 10 layers whose cache grows, 40.0 KiB a token (K f16, V f16); weights 7.45 GiB
CARD0 (a card): device 23.3 GiB free at 800 GB/s; link 20.0 GB/s, 0.0 us; host 55.9 GiB free at 40.0 GB/s, its attention 30.0 GB/s

fits with a window: 16384 of 65536 cells of each layer on the device, the rest in host memory
  device  8.30 of 23.28 GiB: weights 7.45, window 0.62, working memory 0.13 (estimated), ring 95.5 MiB (191 slots)
  host    1.88 of 55.88 GiB: the tail, 49152 cells of each layer

predicted with 65536 tokens in the cache, of which 1.88 GiB lie in the tail:
  engine       ms/token   tokens/s    by host
  stream         100.66        9.9         0%
  host            77.12       13.0       100%
  hybrid          50.33       19.9        53%  <- auto
  (resident)      13.36       74.9              if every cell were on the device
";
    let text = stdout(&output);
    let (said, rest) = text.split_at(text.find("  prompt: ").expect("a line about prompts"));
    assert_eq!(said, expected);
    let lines: Vec<&str> = rest
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        lines,
        [
            "rolling-kv run -m model.gguf --ctx 65536 --window-cells 16384 --tail-engine hybrid",
            "llama-server -m model.gguf -ngl 99 -c 65536 --kv-window-cells 16384 --kv-tail-engine hybrid",
        ]
    );
}

#[test]
fn the_object_holds_the_same_numbers() {
    let (_folder, rates) = rates();
    let options = [
        "--shape", SHAPE, "--ctx", "65536", "--vram", "640", "--rates", &rates,
    ];
    let (output, json) = planned(&options);
    assert_eq!(output.status.code(), Some(0));
    // 640 MiB of 40 KiB a token.
    assert_eq!(
        (&json["fit"], &json["window_cells"]),
        (&"window".into(), &16_384.into())
    );
    let engines = json["engines"].as_array().unwrap();
    assert_eq!(engines.len(), 3);
    let tail = (65_536.0 - 16_384.0) * 40_960.0;
    let stream = engines[0]["step_ms"].as_f64().unwrap();
    assert!(
        (stream / (tail / 20e9 * 1e3) - 1.0).abs() < 0.01,
        "{stream}"
    );
    assert_eq!(json["best"], "hybrid");
    assert_eq!(json["rates"]["device_flops"], 50e12);

    let narrow = [
        &options[..],
        &["--tail-type-k", "q8_0", "--tail-type-v", "q8_0"],
    ]
    .concat();
    let (_, json) = planned(&narrow);
    assert!(json["tail_bytes"].as_f64().unwrap() < 0.54 * tail);
    let line = json["server"].as_str().unwrap();
    assert!(
        line.ends_with("--kv-tail-type-k q8_0 --kv-tail-type-v q8_0"),
        "{line}"
    );
}

#[test]
fn what_does_not_fit_is_an_answer_with_advice_and_exit_code_1() {
    let (_folder, rates) = rates();
    let large = SHAPE.replace("weights=8GB", "weights=40GB");
    let output = run(&[
        "plan", "--shape", &large, "--ctx", "4096", "--rates", &rates,
    ]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in [
        "does NOT fit: the device lacks 14.",
        "next: try fewer layers on the device",
    ] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    let (output, json) = planned(&[
        "--shape",
        SHAPE,
        "--ctx",
        "2000000",
        "--window-cells",
        "128",
        "--rates",
        &rates,
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json["fit"], "not on host");
}

#[test]
fn published_machines_are_listed_and_planned_for() {
    let list = stdout(&run(&["plan", "--list-machines"]));
    for word in [
        "rtx3090-gen3",
        "rtx3090-gen4",
        "a100",
        "h200",
        "gen4-x16, pinned",
        "https://",
    ] {
        assert!(list.contains(word), "no {word:?} in: {list}");
    }
    let at = |machine: &str| {
        let (_, json) = planned(&["--shape", "14b", "--ctx", "131072", "--machine", machine]);
        json["engines"][0]["step_ms"].as_f64().unwrap()
    };
    let (slow, fast, whole) = (at("rtx3090-gen3"), at("rtx3090-gen4"), at("h200"));
    assert!(
        slow > 1.9 * fast && fast > 5.0 * whole,
        "{slow} {fast} {whole}"
    );

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("mine.toml");
    let text = stdout(&run(&["plan", "--list-machines", "--toml"]));
    fs::write(&path, text.replace("name = \"h200\"", "name = \"mine\"")).unwrap();
    let path = path.to_str().unwrap();
    let (output, _) = planned(&[
        "--shape",
        "70b",
        "--ctx",
        "8192",
        "--machine",
        "mine",
        "--machines",
        path,
    ]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_picture_has_a_line_for_each_engine() {
    let (folder, rates) = rates();
    let svg = folder.path().join("plan.svg");
    let plot = svg.to_str().unwrap();
    let output = run(&[
        "plan", "--shape", SHAPE, "--ctx", "65536", "--vram", "640", "--rates", &rates, "--plot",
        plot,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let svg = fs::read_to_string(svg).unwrap();
    for word in ["<svg", "stream", "host", "hybrid", "tokens in the cache"] {
        assert!(svg.contains(word), "no {word:?}");
    }
}

#[test]
fn what_cannot_be_planned_is_refused_with_advice() {
    let (folder, rates) = rates();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let no_device = RATES.replace("\"device_bytes\": 25000000000", "\"device_bytes\": 0");
    let no_device = path("host.json", &no_device);
    let dead = path("dead.json", &RATES.replace("800e9", "-1"));
    let new = path(
        "new.json",
        &RATES.replace("\"version\": 1", "\"version\": 2"),
    );
    let none = path("none.json", "nothing");
    let shape = ["plan", "--ctx", "4096", "--shape", SHAPE];
    for (options, word) in [
        (&["--rates", no_device.as_str()][..], "without a device"),
        (&["--rates", &dead], "device_memory_bytes_per_s"),
        (&["--rates", &new], "version 2"),
        (&["--rates", &none], "no file of rates"),
        (&["--rates", "/missing.json"], "cannot read"),
        (&["--machine", "cray"], "rtx4090-gen4"),
        (
            &["--machine", "h200", "--machines", &none],
            "no file of machines",
        ),
        (&["--rates", &rates, "--depth", "5000"], "5000"),
        (&["--device", "CUDA7"], "there is no device"),
    ] {
        assert_fails(&run(&[&shape[..], options].concat()), 2, &[word, "next: "]);
    }
    let odd = SHAPE.replace("head-dim=128", "head-dim=20");
    let output = run(&[
        "plan",
        "--ctx",
        "4096",
        "--shape",
        &odd,
        "--rates",
        &rates,
        "--cache-type-k",
        "q4_0",
    ]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "8 heads of 20 are five blocks: {}",
        stderr(&output)
    );
    let odd = odd.replace("kv-heads=8", "kv-heads=2");
    let output = run(&[
        "plan",
        "--ctx",
        "4096",
        "--shape",
        &odd,
        "--rates",
        &rates,
        "--cache-type-k",
        "q4_0",
    ]);
    assert_fails(&output, 2, &["40 values", "q4_0", "next: "]);
    assert_fails(
        &run(&[
            "plan",
            "--ctx",
            "4096",
            "-m",
            "/missing.gguf",
            "--machine",
            "h200",
        ]),
        2,
        &["/missing.gguf"],
    );
    let json = run(&["plan", "--ctx", "4096", "-m", &rates, "--machine", "h200"]);
    assert_fails(&json, 2, &["GGUF"]);
    for (option, value, word) in [
        ("--shape", "13b", "14b"),
        ("--cache-type-k", "f32", "f16"),
        ("--ctx", "0", "1"),
        ("--device", "cuda:0", "sim"),
    ] {
        let output = run(&["plan", option, value]);
        assert_fails(&output, 2, &[option, word]);
    }
}

/// What a plan reads of a file is its header: the weights of this one are not there.
#[test]
fn only_the_header_of_a_model_is_read_and_its_window_is_what_a_run_chooses() {
    let Some(model) = model_for_one_thread() else {
        return;
    };
    let (folder, _) = rates();
    let bytes = fs::metadata(&*model).unwrap().len();
    let head = fs::read(&*model).unwrap();
    let hollow = folder.path().join("hollow.gguf");
    let file = fs::File::create(&hollow).unwrap();
    file.set_len(bytes).unwrap();
    drop(file);
    // The header is less than 4 MiB; the rest is a hole.
    let mut file = fs::OpenOptions::new().write(true).open(&hollow).unwrap();
    std::io::Write::write_all(&mut file, &head[..4 << 20]).unwrap();
    drop(file);
    let at = |path: &Path| {
        let path = path.to_str().unwrap();
        planned(&[
            "-m",
            path,
            "--ctx",
            "2048",
            "--vram",
            "20",
            "--machine",
            "rtx3090-gen4",
        ])
        .1
    };
    let (whole, hollow) = (at(&model), at(&hollow));
    for name in ["cell_bytes", "window_cells", "weight_bytes", "engines"] {
        assert_eq!(whole[name], hollow[name], "{name}");
    }
    // 30 layers of 3 KV heads of 64, K and V of two bytes.
    assert_eq!(whole["cell_bytes"], 30 * 2 * 3 * 64 * 2);

    let mut command = program();
    command.args([
        "run",
        "-p",
        "Once",
        "-n",
        "1",
        "--temp",
        "0",
        "--threads",
        "1",
        "--ctx",
        "2048",
        "--json",
    ]);
    command
        .args([
            "--vram-target-mib",
            "20",
            "--device",
            "sim:link=2GB/s,threads=1",
            "-m",
        ])
        .arg(&*model);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let ran: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ran["residency"]["window_cells_max"], whole["window_cells"]);
    assert_eq!(ran["residency"]["device_bytes"], whole["window_bytes"]);
}
