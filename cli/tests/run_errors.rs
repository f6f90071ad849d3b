//! Everything that `rolling-kv run` can be given and cannot work with: exit code 2, nothing on standard output, and a
//! message that says what to do. None of this needs a real model.

mod common;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use common::{assert_fails, program, run};
use tempfile::TempDir;

/// The run is refused before it starts, with each of `words` in the message.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let mut all = vec!["run"];
    all.extend(args);
    assert_fails(&run(&all), 2, words);
}

#[test]
fn a_missing_file_is_named_with_a_way_to_get_one() {
    refused(
        &["-m", "/no/such/model.gguf", "-p", "x"],
        &["/no/such/model.gguf", "rolling-kv fetch smollm2"],
    );
}

#[test]
fn a_directory_is_answered_with_the_file_in_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap();
    refused(
        &["-m", path, "-p", "x"],
        &["is a directory", "there is none"],
    );
    fs::write(folder.path().join("one.gguf"), "").unwrap();
    refused(&["-m", path, "-p", "x"], &["is a directory", "one.gguf"]);
}

#[test]
fn a_model_that_is_not_fetched_yet_is_answered_with_the_command() {
    let cache = TempDir::new().unwrap();
    let mut command = program();
    command
        .args(["run", "-m", "smollm2", "-p", "x"])
        .env("ROLLING_KV_CACHE_DIR", cache.path());
    assert_fails(
        &command.output().unwrap(),
        2,
        &["not fetched yet", "rolling-kv fetch smollm2"],
    );
}

#[test]
fn a_fetched_model_that_was_cut_short_is_answered_with_the_command() {
    let cache = TempDir::new().unwrap();
    fs::create_dir(cache.path().join("models")).unwrap();
    fs::write(cache.path().join("models").join(common::MODEL_FILE), "half").unwrap();
    let mut command = program();
    command
        .args(["run", "-m", "smollm2", "-p", "x"])
        .env("ROLLING_KV_CACHE_DIR", cache.path());
    assert_fails(
        &command.output().unwrap(),
        2,
        &["damaged", "4 bytes", "rolling-kv fetch smollm2"],
    );
}

#[test]
fn a_file_that_is_no_model_is_refused() {
    let folder = TempDir::new().unwrap();
    for (name, content) in [
        ("text.gguf", "hello, I am a text".as_bytes()),
        ("empty.gguf", b""),
        ("half.gguf", b"GGUF\x03\0"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        refused(&["-m", path.to_str().unwrap(), "-p", "x"], &[name]);
    }
}

#[test]
fn an_empty_prompt_is_refused() {
    refused(&["-m", "x", "-p", ""], &["the prompt is empty", "-p"]);
}

#[test]
fn a_prompt_must_come_from_somewhere_and_from_one_place() {
    refused(&["-m", "x"], &["--prompt", "--file"]);
    refused(
        &["-m", "x", "-p", "y", "--file", "z"],
        &["cannot be used with"],
    );
}

#[test]
fn a_prompt_file_that_is_missing_is_named() {
    refused(
        &["-m", "x", "--file", "/no/such/prompt"],
        &["/no/such/prompt", "--file"],
    );
}

#[test]
fn a_prompt_that_is_not_utf8_is_refused_with_the_place() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("latin1");
    fs::write(&path, b"caf\xe9 au lait").unwrap();
    refused(
        &["-m", "x", "--file", path.to_str().unwrap()],
        &["not UTF-8", "byte 3", "iconv"],
    );

    let mut child = program()
        .args(["run", "-m", "x", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xe6\xad").unwrap();
    assert_fails(
        &child.wait_with_output().unwrap(),
        2,
        &["standard input", "byte 0"],
    );
}

#[test]
fn numbers_that_cannot_be_computed_with_are_refused() {
    for (option, value) in [
        ("--temp", "nan"),
        ("--temp", "-0.5"),
        ("--temp", "inf"),
        ("--top-p", "1.5"),
        ("--top-p", "NaN"),
        ("--min-p", "-1"),
        ("--top-k", "-3"),
        ("--repeat-penalty", "0"),
        ("--ctx", "0"),
        ("--ctx", "99999999999"),
        ("--batch", "0"),
        ("--ubatch", "0"),
        ("--threads", "0"),
        ("--threads", "100000"),
        ("--seed", "4294967295"),
        ("--tokens", "-1"),
    ] {
        refused(
            &["-m", "x", "-p", "y", option, value],
            &[
                &format!("invalid value '{value}'"),
                option,
                "is not a number",
            ],
        );
    }
}

#[test]
fn unknown_choices_are_answered_with_the_known_ones() {
    refused(
        &["-m", "x", "-p", "y", "--cache-type-k", "q9_9"],
        &["q9_9", "q8_0"],
    );
    refused(
        &["-m", "x", "-p", "y", "--flash-attn", "maybe"],
        &["maybe", "auto, on, off"],
    );
}

#[test]
fn a_system_message_needs_a_chat() {
    refused(&["-m", "x", "-p", "y", "--system", "z"], &["--chat"]);
}
