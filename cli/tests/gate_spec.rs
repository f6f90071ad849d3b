//! `rolling-kv gate run` as a program: what a spec says holds, what is given behind it wins, and what is wrong in it is named.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{alone, assert_fails, option, run, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// A spec of the logit gate on a tiny model.
const TINY: &str = "\
version = 1
gate = \"logit-equiv\"
about = \"a tiny model\"

[options]
model = \"tiny:llama\"
ctx = 256
window-percent = [50, 25]
tile-cells = 32
threads = 1
seed = 7

[thresholds.floor-factor]
value = 3.5
why = \"three and a half of it\"
";

fn spec(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("mine.toml");
    fs::write(&path, text).unwrap();
    path
}

fn gate_run(spec: &Path, options: &[&str]) -> Output {
    run(&[&["gate", "run", spec.to_str().unwrap()], options].concat())
}

#[track_caller]
fn ended(output: &Output, code: i32) -> String {
    let out = stdout(output);
    assert_eq!(output.status.code(), Some(code), "{out}{}", stderr(output));
    out
}

#[test]
fn what_the_spec_says_holds_and_is_printed_before_the_work_with_every_reason() {
    let _turn = alone();
    let folder = TempDir::new().unwrap();
    let path = spec(folder.path(), TINY);
    let json = folder.path().join("found.json");
    let out = ended(&gate_run(&path, &["--json", json.to_str().unwrap()]), 0);
    assert!(out.starts_with("gate logit-equiv\n"), "{out}");
    for (name, value) in [
        ("spec", path.to_str().unwrap()),
        ("model", "tiny:llama"),
        ("seed", "7"),
        ("ctx", "256"),
        ("window-percent", "50,25"),
        ("cache-type", "f16"),
        ("inject", "nothing"),
        ("text", "built in"),
    ] {
        assert_eq!(option(&out, name), value, "{name}");
    }
    let (block, rest) = out.split_once("prompt tokens").unwrap();
    assert!(block.contains("3.5: three and a half of it"), "{block}");
    assert!(
        block.contains("0: partials are made tile by tile"),
        "{block}"
    );
    assert!(rest.contains("window 128 against resident"), "{rest}");
    assert!(rest.contains("ok: ") && rest.ends_with("PASS\n"), "{rest}");

    let json: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(json["seed"], 7);
    assert_eq!(json["options"]["window-percent"], "50,25");
    assert_eq!(json["window_cells"], serde_json::json!([128, 64]));
    let thresholds = json["thresholds"].as_array().unwrap();
    let floor = thresholds
        .iter()
        .find(|threshold| threshold["name"] == "floor-factor");
    let floor = floor.unwrap_or_else(|| panic!("{thresholds:?}"));
    assert_eq!(floor["value"], 3.5);
    assert_eq!(floor["why"], "three and a half of it");
    assert_eq!(floor["holds"], true);
    assert!(floor["found"].as_f64().unwrap() <= 3.5);
}

#[test]
fn what_is_given_behind_the_spec_wins_and_a_changed_threshold_changes_the_verdict() {
    let _turn = alone();
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let keep = ["--results", kept.to_str().unwrap()];
    let path = spec(folder.path(), TINY);
    let own = ["--seed", "9", "--window-cells", "96"];
    let out = ended(&gate_run(&path, &[&own[..], &keep].concat()), 0);
    assert_eq!(option(&out, "seed"), "9");
    assert_eq!(option(&out, "window-cells"), "96");
    assert!(!out.contains("window-percent"), "{out}");
    assert!(out.contains("window 96 against resident"), "{out}");

    // What is kept is judged anew: nothing is computed for it.
    let strict = TINY.replace("value = 3.5", "value = 0.0")
        + "\n[thresholds.floor-least]\nvalue = 0.0\nwhy = \"nothing may differ\"\n";
    let path = spec(folder.path(), &strict);
    let out = ended(&gate_run(&path, &[&own[..], &keep].concat()), 1);
    assert!(out.contains("4 results were there already"), "{out}");
    assert!(
        out.contains("FAILED: resident is at the noise floor"),
        "{out}"
    );
    assert!(out.ends_with("FAIL\n"), "{out}");
}

#[test]
fn a_built_in_spec_is_printed_to_be_copied_and_run_by_its_name() {
    let text = ended(&run(&["gate", "run", "--print", "niah-all"]), 0);
    assert!(
        text.contains("lengths = [512, 1024, 2048, 4096, 6800]"),
        "{text}"
    );
    assert_fails(
        &run(&["gate", "run", "--print", "nia"]),
        2,
        &["nia", "niah-all"],
    );
    assert_fails(&run(&["gate", "run"]), 2, &["SPEC"]);

    let _turn = alone();
    let small = "-m tiny:llama --ctx 256 --window-cells 64 --tile-cells 32 --threads 1";
    let options: Vec<&str> = small.split(' ').collect();
    let out = ended(&gate_run(Path::new("logit-equiv"), &options), 0);
    assert_eq!(option(&out, "spec"), "logit-equiv");
}

#[test]
fn what_is_wrong_in_a_spec_is_named_with_its_place_and_what_is_allowed() {
    let folder = TempDir::new().unwrap();
    for (from, to, words) in [
        (
            "window-percent",
            "window-precent",
            &["line 8", "window-precent", "window-percent"][..],
        ),
        (
            "floor-factor]",
            "floor-factro]",
            &["line 13", "floor-factro", "floor-factor"],
        ),
        (
            "version = 1",
            "version = 7",
            &["line 1", "version 7", "version 1"],
        ),
        ("version = 1", "this is no TOML", &["line 1", "--print"]),
        (
            "gate = \"logit",
            "gate = \"logits",
            &["line 2", "logits-equiv", "logit-equiv"],
        ),
        (
            "ctx = 256",
            "ctx = \"many\"",
            &["line 7", "--ctx", "many", "number"],
        ),
        ("ctx = 256", "ctx = -5", &["line 7", "--ctx", "-5"]),
        (
            "ctx = 256",
            "ctx = { of = 256 }",
            &["line 7", "ctx", "table"],
        ),
        ("[50, 25]", "[50, 250]", &["line 8", "250", "99"]),
        (
            "tile-cells = 32",
            "window-cells = 32",
            &["cannot be used with"],
        ),
        ("value = 3.5", "value = \"3.5\"", &["line 14", "value"]),
        (
            "value = 3.5",
            "value = nan",
            &["line 13", "floor-factor", "NaN"],
        ),
        ("why = \"three", "wy = \"three", &["line 15", "wy", "why"]),
        ("why = \"three and a half of it\"", "", &["why", "missing"]),
        (
            "why = \"three and a half of it\"",
            "why = \" \"",
            &["line 13", "reason"],
        ),
        ("tiny:llama", "/no/such.gguf", &["/no/such.gguf"]),
    ] {
        assert!(TINY.contains(from), "{from}");
        let path = spec(folder.path(), &TINY.replacen(from, to, 1));
        let output = gate_run(&path, &[]);
        assert_fails(&output, 2, words);
        let text = stderr(&output);
        assert!(text.contains("next: "), "{text}");
        assert!(
            text.contains(path.to_str().unwrap()) || to == "/no/such.gguf",
            "the spec is not named: {text}"
        );
    }
}

#[test]
fn a_spec_that_is_not_there_is_answered_with_those_that_are() {
    let output = gate_run(Path::new("/no/such/spec.toml"), &[]);
    assert_fails(&output, 2, &["/no/such/spec.toml", "logit-equiv, niah"]);
    let folder = TempDir::new().unwrap();
    assert_fails(&gate_run(folder.path(), &[]), 2, &["cannot read the spec"]);
}

#[test]
fn what_the_user_gives_wrong_is_answered_as_without_a_spec() {
    let folder = TempDir::new().unwrap();
    let path = spec(folder.path(), TINY);
    for (own, words) in [
        (&["--ctx", "few"][..], &["--ctx", "few", "number"][..]),
        (&["--tlie-cells", "64"], &["--tlie-cells", "--tile-cells"]),
    ] {
        let output = gate_run(&path, own);
        assert_fails(&output, 2, words);
        assert!(
            !stderr(&output).contains("mine.toml"),
            "{}",
            stderr(&output)
        );
    }
}
