//! `rolling-kv run` with a real model: SmolLM2.

mod common;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{assert_fails, model, program, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// One thread is the quickest on a machine that has other work too.
fn command(model: &Path, args: &[&str]) -> Command {
    let mut command = program();
    command
        .args(["run", "--threads", "1", "--model"])
        .arg(model)
        .args(args);
    command
}

fn run(model: &Path, args: &[&str]) -> Output {
    command(model, args).output().unwrap()
}

/// Standard output of a run that must go well.
#[track_caller]
fn text(model: &Path, args: &[&str]) -> String {
    let output = run(model, args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn json(model: &Path, args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.push("--json");
    serde_json::from_str(&text(model, &all)).expect("one JSON object")
}

#[test]
fn standard_output_holds_the_text_and_standard_error_the_timings() {
    let Some(model) = model() else { return };
    let output = run(
        &model,
        &["-p", "The capital of France is", "-n", "8", "--temp", "0"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with(" Paris"), "{}", stdout(&output));
    let timings = stderr(&output);
    assert_eq!(timings.lines().count(), 1, "{timings}");
    for part in [
        "prompt: 5 tokens, ",
        "generated: 8 tokens, ",
        "load: ",
        "seed: ",
        "stop: length",
    ] {
        assert!(timings.contains(part), "no {part:?} in: {timings}");
    }
}

#[test]
fn json_says_what_was_done_with_what() {
    let Some(model) = model() else { return };
    let args = [
        "-p",
        "The capital of France is",
        "-n",
        "8",
        "--temp",
        "0",
        "--seed",
        "7",
        "--top-k",
        "11",
    ];
    let object = json(&model, &args);
    assert_eq!(object["text"], text(&model, &args));
    assert_eq!(object["tokens"].as_array().unwrap().len(), 8);
    assert_eq!(
        (&object["prompt_tokens"], &object["generated_tokens"]),
        (&5.into(), &8.into())
    );
    assert_eq!(object["stop_reason"], "length");
    assert_eq!(object["seed"], 7);
    assert_eq!(object["model"]["path"], model.to_str().unwrap());
    assert_eq!(object["model"]["trained_context_tokens"], 8192);
    assert!(object["model"]["parameters"].as_u64().unwrap() > 100_000_000);
    assert_eq!(
        (&object["options"]["top_k"], &object["options"]["threads"]),
        (&11.into(), &1.into())
    );
    assert_eq!(object["options"]["flash_attn"], true);
    for timing in [
        "load_ms",
        "prompt_ms",
        "prompt_tokens_per_second",
        "generate_ms",
        "generated_tokens_per_second",
    ] {
        assert!(
            object["timings"][timing].as_f64().unwrap() > 0.0,
            "{timing}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_seed_another() {
    let Some(model) = model() else { return };
    let with_seed = |seed: &str| {
        text(
            &model,
            &[
                "-p",
                "Once upon a time",
                "-n",
                "24",
                "--temp",
                "1.2",
                "--seed",
                seed,
            ],
        )
    };
    assert_eq!(with_seed("1"), with_seed("1"));
    assert_ne!(with_seed("1"), with_seed("2"));
}

#[test]
fn without_a_seed_the_one_that_was_used_is_named_and_works() {
    let Some(model) = model() else { return };
    let args = ["-p", "Once upon a time", "-n", "12", "--temp", "1.2"];
    let first = json(&model, &args);
    let seed = first["seed"].to_string();
    let mut again = args.to_vec();
    again.extend(["--seed", &seed]);
    assert_eq!(json(&model, &again)["text"], first["text"]);
}

#[test]
fn a_chat_uses_the_template_of_the_model() {
    let Some(model) = model() else { return };
    let question = "What is the capital of France?";
    let answer = json(
        &model,
        &[
            "--chat",
            "--system",
            "Be brief.",
            "-p",
            question,
            "-n",
            "40",
            "--temp",
            "0",
        ],
    );
    assert!(
        answer["text"].as_str().unwrap().contains("Paris"),
        "{answer}"
    );
    assert_eq!(answer["stop_reason"], "end_of_text");
    let by_hand = format!(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        json(&model, &["-p", &by_hand, "-n", "40", "--temp", "0"])["tokens"],
        answer["tokens"]
    );
}

#[test]
fn a_prompt_file_is_the_prompt_without_its_last_line_feed() {
    let Some(model) = model() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("prompt");
    fs::write(&path, "The capital of\nFrance is\n").unwrap();
    let from_file = text(
        &model,
        &["--file", path.to_str().unwrap(), "-n", "6", "--temp", "0"],
    );
    assert_eq!(
        from_file,
        text(
            &model,
            &["-p", "The capital of\nFrance is", "-n", "6", "--temp", "0"]
        )
    );

    let piped = command(&model, &["--file", "-", "-n", "6", "--temp", "0"])
        .stdin(File::open(&path).unwrap())
        .output();
    assert_eq!(stdout(&piped.unwrap()), from_file);
}

#[test]
fn no_tokens_means_no_text() {
    let Some(model) = model() else { return };
    let object = json(&model, &["-p", "Hello", "-n", "0"]);
    assert_eq!(
        (&object["text"], &object["generated_tokens"]),
        (&"".into(), &0.into())
    );
    assert_eq!(object["prompt_tokens"], 1);
}

#[test]
fn a_repeat_penalty_changes_what_is_said() {
    let Some(model) = model() else { return };
    let args = ["-p", "la la la la la la", "-n", "16", "--temp", "0"];
    let mut punished = args.to_vec();
    punished.extend(["--repeat-penalty", "2"]);
    assert_ne!(text(&model, &args), text(&model, &punished));
}

#[test]
fn a_full_context_ends_the_text() {
    let Some(model) = model() else { return };
    let object = json(
        &model,
        &[
            "-p",
            "1 2 3 4 5 6 7 8 9",
            "-n",
            "1000",
            "--ctx",
            "256",
            "--temp",
            "0",
        ],
    );
    assert_eq!(object["stop_reason"], "context_full");
    let tokens =
        object["prompt_tokens"].as_u64().unwrap() + object["generated_tokens"].as_u64().unwrap();
    assert_eq!((tokens, &object["options"]["ctx"]), (256, &256.into()));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let Some(model) = model() else { return };
    let words = "word ".repeat(600);
    let output = run(&model, &["-p", &words, "-n", "4", "--ctx", "256"]);
    assert_fails(&output, 2, &["601", "256", "--ctx"]);
    let words = "word ".repeat(9000);
    assert_fails(
        &run(&model, &["-p", &words, "-n", "4"]),
        2,
        &["9001", "8192", "--ctx"],
    );
}

#[test]
fn quantised_values_without_flash_attention_are_refused() {
    let Some(model) = model() else { return };
    let args = [
        "-p",
        "x",
        "-n",
        "2",
        "--cache-type-v",
        "q8_0",
        "--flash-attn",
        "off",
    ];
    assert_fails(&run(&model, &args), 2, &["q8_0", "flash attention"]);
}

#[test]
fn a_quantised_cache_still_answers() {
    let Some(model) = model() else { return };
    let args = [
        "-p",
        "The capital of France is",
        "-n",
        "4",
        "--temp",
        "0",
        "--cache-type-k",
        "q8_0",
        "--cache-type-v",
        "q8_0",
    ];
    assert!(text(&model, &args).starts_with(" Paris"));
}

#[test]
fn a_model_file_that_was_cut_short_is_refused() {
    let Some(model) = model() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cut.gguf");
    let mut from = File::open(&*model).unwrap().take(20_000_000);
    io::copy(&mut from, &mut File::create(&path).unwrap()).unwrap();
    assert_fails(
        &run(&path, &["-p", "x", "-n", "1"]),
        2,
        &["cut.gguf", "cut short"],
    );
}

#[test]
fn emoji_and_chinese_come_out_whole() {
    let Some(model) = model() else { return };
    for prompt in [
        "Repeat: 😀😀😀😀😀😀 Repeat: 😀😀😀",
        "重复：你好你好你好你好。重复：你好",
    ] {
        for tokens in ["5", "6", "7"] {
            let output = run(&model, &["-p", prompt, "-n", tokens, "--temp", "0"]);
            assert_eq!(output.status.code(), Some(0));
            assert!(
                std::str::from_utf8(&output.stdout).is_ok(),
                "{prompt}: {:?}",
                output.stdout
            );
        }
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let Some(model) = model() else { return };
    let mut child = command(
        &model,
        &["-p", "Once upon a time", "-n", "4000", "--temp", "0"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut first = [0; 1];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("stop: output closed"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn log_lines_of_llama_cpp_are_shown_when_asked_for() {
    let Some(model) = model() else { return };
    let quiet = run(&model, &["-p", "x", "-n", "1", "--temp", "0"]);
    assert_eq!(stderr(&quiet).lines().count(), 1, "{}", stderr(&quiet));
    let loud = run(&model, &["-p", "x", "-n", "1", "--temp", "0", "-v"]);
    assert!(
        stderr(&loud).contains("llama_model_loader"),
        "{}",
        stderr(&loud)
    );
    assert_eq!(stdout(&quiet), stdout(&loud));
}
