//! The run-equality gate: at temperature 0, `rolling-kv run` gives the text that unpatched llama-completion gives.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::cargo;
use crate::error::{Error, Result};
use crate::model;
use crate::native;
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;

/// Tokens that each prompt is continued by.
const TOKENS: u32 = 48;

/// The longest that one program may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// A text to continue, and why it is one of these.
struct Prompt {
    name: &'static str,
    text: String,
    /// Fewer tokens than these would not show what the prompt is there to show.
    tokens_least: u64,
}

fn prompts() -> [Prompt; 6] {
    let prompt = |name, text: &str| Prompt {
        name,
        text: text.to_owned(),
        tokens_least: 5,
    };
    [
        prompt("English", "The lighthouse keeper wrote in his diary that"),
        prompt("Chinese", "从前有一座山，山上有一座庙，庙里"),
        prompt(
            "emoji",
            "Weather report 🌧️🌈👩‍🔬: today the sky over Zürich is",
        ),
        prompt(
            "code",
            "fn fibonacci(n: u64) -> u64 {\n    match n {\n        0 => 0,\n",
        ),
        Prompt {
            name: "longer than a ubatch",
            text: long_text(80),
            tokens_least: 513,
        },
        Prompt {
            name: "longer than a batch",
            text: long_text(180),
            tokens_least: 2049,
        },
    ]
}

/// About a dozen tokens a station: a ubatch holds 512, a batch 2048.
fn long_text(stations: u32) -> String {
    let mut text =
        String::from("A list of stations on the line, with the year in which each was opened.\n");
    for number in 1..=stations {
        text.push_str(&format!(
            "Station {number} was opened in the year {}.\n",
            1850 + number * 2
        ));
    }
    text
}

/// Compares the two programs on every prompt and prints a line for each.
pub fn run(place: &Place) -> Result<Counts> {
    let ours = cargo::program(place)?;
    let model = model::fetch(place)?;
    let theirs = native::stock_completion(place)?;
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .to_string();
    let mut counts = Counts::default();
    for prompt in prompts() {
        let expected = stock_text(&theirs, &model, &threads, &prompt)?;
        if expected.prompt_tokens < prompt.tokens_least {
            let what = format!(
                "the prompt {:?} has only {} tokens",
                prompt.name, expected.prompt_tokens
            );
            return Err(Error::wrong(
                what,
                "make it longer in xtask/src/equality.rs",
            ));
        }
        let found = our_text(&ours, &model, &threads, &prompt)?;
        let verdict = compare(&expected, &found);
        println!(
            "{}: {}",
            prompt.name,
            verdict.as_ref().map_or_else(String::clone, String::clone)
        );
        counts += if verdict.is_ok() {
            Counts::ONE
        } else {
            Counts::new(0, 1, 0)
        };
    }
    Ok(counts)
}

/// A continuation and what is known of its length.
#[derive(Debug, PartialEq, Eq)]
struct Text {
    text: Vec<u8>,
    tokens: u64,
    prompt_tokens: u64,
}

fn compare(expected: &Text, found: &Text) -> Result<String, String> {
    if expected == found {
        return Ok(format!(
            "equal: {} bytes, {} tokens after {} of prompt",
            found.text.len(),
            found.tokens,
            found.prompt_tokens
        ));
    }
    let same = expected
        .text
        .iter()
        .zip(&found.text)
        .take_while(|(a, b)| a == b)
        .count();
    let show = |text: &Text| {
        let rest = String::from_utf8_lossy(&text.text[same.min(text.text.len())..]).into_owned();
        format!(
            "{} tokens after {} of prompt, from there {rest:?}",
            text.tokens, text.prompt_tokens
        )
    };
    Err(format!(
        "DIFFERENT after {same} bytes\n  llama-completion: {}\n  rolling-kv:       {}",
        show(expected),
        show(found)
    ))
}

fn stock_text(program: &Path, model: &Path, threads: &str, prompt: &Prompt) -> Result<Text> {
    let ended = Run::new(program)
        .args([
            "-no-cnv",
            "--no-display-prompt",
            "--simple-io",
            "--no-escape",
            "--temp",
            "0",
            "-c",
            "4096",
        ])
        .args([
            "-t",
            threads,
            "-tb",
            threads,
            "-n",
            &TOKENS.to_string(),
            "-p",
            &prompt.text,
            "-m",
        ])
        .arg(model)
        .limit(LIMIT)
        .quietly()?
        .success()?;
    let counted = || -> Option<(u64, u64)> {
        Some((
            perf(&ended.text, "prompt eval time", "tokens")?,
            perf(&ended.text, " eval time", "runs")?,
        ))
    };
    let (prompt_tokens, runs) = counted().ok_or_else(|| {
        Error::wrong(
            "llama-completion printed no timings that could be read",
            "compare its output with what xtask/src/equality.rs expects",
        )
    })?;
    let (text, ended_early) = strip(&ended.stdout);
    // The first token comes from the prompt's own evaluation; the token that ends a text is made but not printed.
    let tokens = runs + 1 - u64::from(ended_early);
    Ok(Text {
        text: whole_characters(text),
        tokens,
        prompt_tokens,
    })
}

/// The last token can end inside a character. llama-completion prints the bytes as they are; a JSON text holds only whole
/// characters, so ours has the replacement character there.
fn whole_characters(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).into_owned().into_bytes()
}

/// The generated text without what llama-completion prints after it, and whether the model ended it.
fn strip(stdout: &[u8]) -> (&[u8], bool) {
    let text = stdout.strip_suffix(b"\n\n").unwrap_or(stdout);
    match text.strip_suffix(b" [end of text]\n") {
        Some(text) => (text, true),
        None => (text, false),
    }
}

/// A count from llama-completion's timing lines: `prompt eval time = 27.51 ms / 5 tokens (..`.
fn perf(text: &str, name: &str, unit: &str) -> Option<u64> {
    let lines = text
        .lines()
        .filter(|line| line.contains(name) && line.contains(unit));
    let line = lines
        .into_iter()
        .find(|line| name.starts_with("prompt") || !line.contains("prompt eval"))?;
    let (_, rest) = line.split_once(" ms / ")?;
    rest.trim_start().split(' ').next()?.parse().ok()
}

fn our_text(program: &Path, model: &Path, threads: &str, prompt: &Prompt) -> Result<Text> {
    let json = Run::new(program)
        .args([
            "run",
            "--json",
            "--temp",
            "0",
            "--ctx",
            "4096",
            "--threads",
            threads,
            "-n",
            &TOKENS.to_string(),
        ])
        .args(["-p", &prompt.text, "-m"])
        .arg(model)
        .limit(LIMIT)
        .quietly()?
        .success()?
        .stdout;
    read_json(&json).ok_or_else(|| {
        let shown = String::from_utf8_lossy(&json).into_owned();
        Error::wrong(
            format!("`rolling-kv run --json` printed something else than expected:\n{shown}"),
            "compare it with xtask/src/equality.rs",
        )
    })
}

fn read_json(json: &[u8]) -> Option<Text> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let count = |name: &str| value.get(name)?.as_u64();
    Some(Text {
        text: value.get("text")?.as_str()?.as_bytes().to_vec(),
        tokens: count("generated_tokens")?,
        prompt_tokens: count("prompt_tokens")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_character_that_is_cut_off_is_compared_as_a_replacement_character() {
        assert_eq!(
            whole_characters(b"ok \xf0\x9f\x98"),
            "ok \u{fffd}".as_bytes()
        );
        assert_eq!(
            whole_characters("\u{1f600}".as_bytes()),
            "\u{1f600}".as_bytes()
        );
    }

    fn text(text: &str, tokens: u64) -> Text {
        Text {
            text: text.as_bytes().to_vec(),
            tokens,
            prompt_tokens: 5,
        }
    }

    #[test]
    fn what_llama_completion_prints_after_the_text_is_stripped_once() {
        assert_eq!(strip(b" Paris.\n\n"), (&b" Paris."[..], false));
        assert_eq!(strip(b"a\n\n\n\n"), (&b"a\n\n"[..], false));
        assert_eq!(
            strip(b" Paris. [end of text]\n\n\n"),
            (&b" Paris."[..], true)
        );
    }

    #[test]
    fn timings_are_read() {
        let log = "0.26 I perf: prompt eval time =    2751.60 ms /     5 tokens (  550.32 ms per token)\n\
                   0.26 I perf:        eval time =   21994.94 ms /    23 runs   (  956.30 ms per token)\n";
        assert_eq!(perf(log, "prompt eval time", "tokens"), Some(5));
        assert_eq!(perf(log, " eval time", "runs"), Some(23));
    }

    #[test]
    fn one_byte_or_one_token_makes_a_difference() {
        assert!(compare(&text("abc", 2), &text("abc", 2)).is_ok());
        assert!(
            compare(&text("abc", 2), &text("abd", 2))
                .unwrap_err()
                .contains("DIFFERENT after 2 bytes")
        );
        assert!(compare(&text("abc", 2), &text("ab", 2)).is_err());
        assert!(compare(&text("abc", 2), &text("abc", 3)).is_err());
    }

    #[test]
    fn our_json_is_read() {
        let json =
            br#"{"text": "\u4f60", "tokens": [1, 2], "generated_tokens": 2, "prompt_tokens": 5}"#;
        assert_eq!(read_json(json), Some(text("你", 2)));
        assert_eq!(read_json(b"{}"), None);
    }

    #[test]
    fn the_prompts_are_what_they_claim() {
        let [_, chinese, emoji, _, long, longer] = prompts();
        assert!(chinese.text.chars().all(|c| !c.is_ascii()));
        assert!(emoji.text.contains('🌈') && emoji.text.contains('\u{200d}'));
        assert!(long.text.split_whitespace().count() > 512);
        assert!(longer.text.len() > 2 * long.text.len());
    }
}
