//! At temperature 0 `rolling-kv run` gives the text of the unpatched llama-completion, token for token.
//!
//! `ROLLING_KV_STOCK_COMPLETION` names that program; `ROLLING_KV_REQUIRE_STOCK=1` makes its absence a failure.

mod common;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{model, model_for_one_thread, program, stderr};
use serde_json::Value;
use tempfile::TempDir;

const TOKENS: &str = "48";

fn stock() -> Option<PathBuf> {
    let found = env::var_os("ROLLING_KV_STOCK_COMPLETION").map(PathBuf::from);
    if found.is_none() {
        let reason = "ROLLING_KV_STOCK_COMPLETION does not name an unpatched llama-completion";
        assert!(
            env::var_os("ROLLING_KV_REQUIRE_STOCK").is_none_or(|value| value != "1"),
            "{reason}"
        );
        println!("SKIP: {reason}");
    }
    found
}

/// What llama-completion prints, without what it adds at the end.
fn stock_text(stock: &Path, model: &Path, prompt: &Path, threads: &str) -> String {
    let output = Command::new(stock)
        .args([
            "-no-cnv",
            "--no-display-prompt",
            "--no-escape",
            "--temp",
            "0",
            "-t",
            threads,
            "-n",
            TOKENS,
            "-m",
        ])
        .arg(model)
        .arg("-f")
        .arg(prompt)
        .stdin(Stdio::null())
        .output()
        .expect("llama-completion starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text
        .strip_suffix("\n\n")
        .expect("two line feeds at the end");
    text.strip_suffix(" [end of text]\n")
        .unwrap_or(text)
        .to_owned()
}

fn our_text(model: &Path, prompt: &Path, threads: &str) -> (String, u64) {
    let mut command = program();
    command
        .args([
            "run",
            "--json",
            "--temp",
            "0",
            "--threads",
            threads,
            "-n",
            TOKENS,
            "--model",
        ])
        .arg(model);
    let output = command.arg("--file").arg(prompt).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    (
        object["text"].as_str().unwrap().to_owned(),
        object["prompt_tokens"].as_u64().unwrap(),
    )
}

/// Compares the two texts for a prompt of at least `tokens_min` tokens, each computed by one thread, which is the
/// quickest on a machine that has other work too.
#[track_caller]
fn same_text(prompt: &str, tokens_min: u64) {
    same_text_with(prompt, tokens_min, "1");
}

#[track_caller]
fn same_text_with(prompt: &str, tokens_min: u64, threads: &str) {
    let model = match threads {
        "1" => model_for_one_thread(),
        _ => model(),
    };
    let (Some(stock), Some(model)) = (stock(), model) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("prompt");
    fs::write(&path, prompt).unwrap();
    let (ours, tokens) = our_text(&model, &path, threads);
    assert!(tokens >= tokens_min, "{tokens}");
    let theirs = stock_text(&stock, &model, &path, threads);
    assert!(!theirs.trim().is_empty(), "llama-completion says something");
    assert_eq!(ours, theirs, "prompt: {prompt}");
}

#[test]
fn a_plain_sentence() {
    same_text("The capital of France is", 5);
}

#[test]
fn several_threads() {
    same_text_with("My favourite number is", 4, "2");
}

#[test]
fn chinese() {
    same_text("请用中文介绍一下北京。北京是", 8);
}

#[test]
fn emoji() {
    same_text(
        "Weather report: Monday ☀️, Tuesday 🌧️, Wednesday 🌈👩‍👩‍👧. In words: Monday",
        12,
    );
}

#[test]
fn a_conversation_with_special_tokens_that_ends_by_itself() {
    same_text(
        "<|im_start|>user\nSay hello in French.<|im_end|>\n<|im_start|>assistant\n",
        12,
    );
}

#[test]
fn longer_than_a_ubatch() {
    let numbers: String = (1..=60)
        .map(|i| format!("Item {i} costs {} coins. ", i * 7 % 100))
        .collect();
    same_text(&format!("{numbers}\nThe first item costs"), 513);
}

#[test]
fn code_with_backslashes_and_blank_lines() {
    same_text(
        "#include <stdio.h>\n\nint main(void) {\n    printf(\"\\ttab\\n\");\n\n    return",
        20,
    );
}
