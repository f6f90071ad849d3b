//! The needle question: a fact that stands once in a long text is asked for at its end, with the cache resident and with
//! three quarters of it in host memory. Both must give the same answer, and it must hold the fact.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::story;

/// What the answer must hold.
const PASSCODE: &str = "7391";
const NEEDLE: &str = "The passcode of the lighthouse is 7391.";
const QUESTION: &str = "What is the passcode of the lighthouse?";

/// Pairs of sentences around the needle: about 4000 tokens of SmolLM2.
const PAIRS: usize = 258;

/// Cells of the context, and those of them in the window.
const CONTEXT: u64 = 4096;
const WINDOW: u64 = CONTEXT / 4;

/// Fewer tokens would not show what is to be shown.
const TOKENS_LEAST: u64 = 3800;

/// What one run answered, and where its cache lay.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    text: String,
    tokens: Vec<i64>,
    prompt_tokens: u64,
    kv_cells: u64,
    window_cells: u64,
    device_bytes: u64,
    host_bytes: u64,
    tiles_tail: u64,
}

/// Asks twice, prints the answer to standard output, and says on standard error what was shown.
pub fn run(place: &Place, program: &Path, model: &Path) -> Result<String> {
    let file = place.work().join("demo-needle.txt");
    fs::create_dir_all(place.work()).map_err(Error::file("make", &place.work()))?;
    fs::write(&file, prompt()).map_err(Error::file("write", &file))?;
    eprintln!(
        "      a text of about 4000 tokens, with this sentence at a third of it: {NEEDLE}\n      Q: {QUESTION}"
    );
    eprintln!("      once with the whole cache on the device (about half a minute) ...");
    let resident = ask(place, program, model, &file, CONTEXT)?;
    eprintln!(
        "      once with {WINDOW} of {CONTEXT} cells there and the others in host memory ..."
    );
    let spilled = ask(place, program, model, &file, WINDOW)?;
    println!("{}", spilled.text.trim());
    judge(&resident, &spilled).map_err(|what| {
        Error::wrong(
            what,
            format!("ask again with `rolling-kv run --file {}`", file.display()),
        )
    })
}

/// The text with the needle at a third of it, and the question.
fn prompt() -> String {
    let mut pairs = story::pairs(PAIRS);
    pairs.insert(PAIRS / 3, NEEDLE.to_owned());
    format!("{}\n\n{QUESTION}\n", pairs.join(" "))
}

fn ask(place: &Place, program: &Path, model: &Path, file: &Path, window: u64) -> Result<Answer> {
    let json = Run::new(program)
        .args(["run", "--chat", "--temp", "0", "-n", "32", "--json"])
        .args(["--order", "tiled", "--ctx", &CONTEXT.to_string()])
        .args(["--window-cells", &window.to_string(), "--file"])
        .arg(file)
        .arg("-m")
        .arg(model)
        .dir(&place.root)
        .answer()?;
    read(&json).ok_or_else(|| {
        Error::wrong(
            format!("`rolling-kv run --json` printed something else than expected:\n{json}"),
            "compare it with xtask/src/needle.rs",
        )
    })
}

fn read(json: &str) -> Option<Answer> {
    let value: Value = serde_json::from_str(json).ok()?;
    let residency = value.get("residency")?;
    let count = |name: &str| residency.get(name)?.as_u64();
    Some(Answer {
        text: value.get("text")?.as_str()?.to_owned(),
        tokens: value
            .get("tokens")?
            .as_array()?
            .iter()
            .map(Value::as_i64)
            .collect::<Option<_>>()?,
        prompt_tokens: value.get("prompt_tokens")?.as_u64()?,
        kv_cells: count("kv_cells")?,
        window_cells: count("window_cells_max")?,
        device_bytes: count("device_bytes")?,
        host_bytes: count("host_bytes")?,
        tiles_tail: count("tiles_tail")?,
    })
}

/// What was shown, or what was not as it must be.
fn judge(resident: &Answer, spilled: &Answer) -> Result<String, String> {
    let Answer {
        prompt_tokens,
        kv_cells,
        window_cells,
        tiles_tail,
        ..
    } = spilled;
    if resident.tokens != spilled.tokens || resident.text != spilled.text {
        return Err(format!(
            "the answers differ: {:?} with the whole cache on the device, {:?} with a window of {window_cells} cells",
            resident.text, spilled.text
        ));
    }
    if !spilled.text.contains(PASSCODE) {
        return Err(format!(
            "the answer {:?} does not hold {PASSCODE}",
            spilled.text
        ));
    }
    if *prompt_tokens < TOKENS_LEAST || window_cells * 4 > *kv_cells || *tiles_tail == 0 {
        return Err(format!(
            "{prompt_tokens} tokens, {window_cells} of {kv_cells} cells in the window and {tiles_tail} tiles read from the tail show nothing"
        ));
    }
    if resident.host_bytes != 0
        || resident.device_bytes != spilled.device_bytes + spilled.host_bytes
    {
        return Err(format!(
            "the bytes do not add up: {} on the device alone, {} there and {} in host memory",
            resident.device_bytes, spilled.device_bytes, spilled.host_bytes
        ));
    }
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    Ok(format!(
        "the same {} tokens of answer with {:.1} MiB of cache on the device, and with {:.1} MiB there ({window_cells} of \
         {kv_cells} cells) and {:.1} MiB in host memory; {tiles_tail} tiles were read from the tail",
        spilled.tokens.len(),
        mib(resident.device_bytes),
        mib(spilled.device_bytes),
        mib(spilled.host_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Answer, Answer) {
        let resident = Answer {
            text: format!("It is {PASSCODE}."),
            tokens: vec![1, 2, 3],
            prompt_tokens: 4000,
            kv_cells: 4096,
            window_cells: 4096,
            device_bytes: 400,
            host_bytes: 0,
            tiles_tail: 0,
        };
        let spilled = Answer {
            window_cells: 1024,
            device_bytes: 100,
            host_bytes: 300,
            tiles_tail: 9,
            ..resident.clone()
        };
        (resident, spilled)
    }

    #[test]
    fn the_needle_stands_once_at_a_third_and_the_question_does_not_give_it_away() {
        let prompt = prompt();
        assert_eq!(prompt.matches(PASSCODE).count(), 1);
        let place = prompt.find(NEEDLE).unwrap() as f64 / prompt.len() as f64;
        assert!((0.3..0.37).contains(&place), "{place}");
        assert!(prompt.trim_end().ends_with(QUESTION));
    }

    #[test]
    fn equal_answers_with_the_passcode_are_shown_with_their_bytes() {
        let (resident, spilled) = pair();
        let shown = judge(&resident, &spilled).unwrap();
        assert!(
            shown.contains("1024 of 4096") && shown.contains("9 tiles"),
            "{shown}"
        );
    }

    #[test]
    fn whatever_is_not_as_it_must_be_fails() {
        let (resident, spilled) = pair();
        let broken = |change: fn(&mut Answer)| {
            let mut other = spilled.clone();
            change(&mut other);
            judge(&resident, &other)
        };
        assert!(broken(|a| a.tokens.push(4)).unwrap_err().contains("differ"));
        assert!(broken(|a| a.window_cells = 2048).is_err());
        assert!(broken(|a| a.tiles_tail = 0).is_err());
        assert!(broken(|a| a.prompt_tokens = 300).is_err());
        assert!(
            broken(|a| a.host_bytes = 301)
                .unwrap_err()
                .contains("add up")
        );
        let (mut resident, mut spilled) = pair();
        resident.text = "I do not know.".into();
        spilled.text = resident.text.clone();
        assert!(judge(&resident, &spilled).unwrap_err().contains(PASSCODE));
    }

    #[test]
    fn an_answer_is_read_from_the_programs_json() {
        let json = r#"{"text":"a","tokens":[5],"prompt_tokens":7,"residency":{"kv_cells":256,"window_cells_max":128,
            "device_bytes":1,"host_bytes":2,"tiles_tail":3}}"#;
        let answer = read(json).unwrap();
        assert_eq!(
            (answer.tokens, answer.window_cells, answer.tiles_tail),
            (vec![5], 128, 3)
        );
        assert_eq!(read(r#"{"text":"a"}"#), None);
    }
}
