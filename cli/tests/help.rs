//! What the program says about itself.

mod common;

use common::{assert_fails, run, stderr, stdout};

/// The text of a help page, which must come with exit code 0 on standard output.
#[track_caller]
fn help(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    stdout(&output)
}

#[test]
fn the_front_page_names_every_command_and_a_way_to_start() {
    let text = help(&["--help"]);
    for word in [
        "run ",
        "doctor ",
        "fetch ",
        "rolling-kv fetch smollm2",
        "Exit codes",
        "ROLLING_KV_CACHE_DIR",
    ] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    assert!(!text.contains("--try"));
}

#[test]
fn each_command_explains_itself_with_examples_that_name_it() {
    for command in ["run", "doctor", "fetch", "gate"] {
        let text = help(&[command, "--help"]);
        assert!(
            text.contains(&format!("Examples:\n  rolling-kv {command}")),
            "{text}"
        );
        assert!(text.len() > help(&[command, "-h"]).len());
    }
}

#[test]
fn help_of_run_names_every_option_and_its_default() {
    let text = help(&["run", "-h"]);
    let options = [
        "--model",
        "--prompt",
        "--file",
        "--tokens",
        "--chat",
        "--system",
        "--json",
        "--temp",
        "--seed",
        "--top-k",
        "--top-p",
        "--min-p",
        "--repeat-penalty",
        "--ctx",
        "--batch",
        "--ubatch",
        "--threads",
        "--gpu-layers",
        "--cache-type-k",
        "--cache-type-v",
        "--flash-attn",
        "--window-cells",
        "--vram-target-mib",
        "--resident-layers",
        "--order",
        "--tile-cells",
        "--verbose",
    ];
    for option in options {
        assert!(text.contains(option), "no {option} in: {text}");
    }
    assert!(
        text.contains("[default: 0.8]") && text.contains("[default: 2048]"),
        "{text}"
    );
}

#[test]
fn help_pages_fit_a_line_of_100_characters() {
    for args in [
        vec!["--help"],
        vec!["run", "--help"],
        vec!["doctor", "--help"],
        vec!["fetch", "--help"],
        vec!["gate", "--help"],
        vec!["gate", "logit-equiv", "--help"],
    ] {
        let text = help(&args);
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}

#[test]
fn version_names_the_pinned_llama_cpp() {
    let text = help(&["--version"]);
    assert!(
        text.starts_with(&format!("rolling-kv {}\n", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    let record = include_str!("../../vendor/UPSTREAM.toml");
    let commit = record
        .lines()
        .find_map(|line| line.strip_prefix("llama_cpp_commit = "))
        .unwrap()
        .trim_matches('"');
    assert!(text.contains(commit), "{text}");
    assert_eq!(
        help(&["-V"]).trim(),
        format!("rolling-kv {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_wrong_option_is_answered_with_the_right_one() {
    assert_fails(
        &run(&["run", "-m", "x", "-p", "y", "--tmp", "0"]),
        2,
        &["--tmp", "--temp"],
    );
}

#[test]
fn an_unknown_model_name_is_answered_with_the_known_ones() {
    assert_fails(&run(&["fetch", "gpt"]), 2, &["gpt", "smollm2"]);
}
