//! A server with two slots on the simulated device, most of its cache in host memory, against one whose cache is resident on the CPU.

use std::thread;

use rolling_kv_stage::Variant;
use serde_json::{Value, json};

use crate::error::Result;
use crate::model;
use crate::native;
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;
use crate::server::Server;
use crate::story;

/// What the device is.
const DEVICE: &str = "mem=512MiB,link=16GB/s,latency=1us";

/// Requests, in turns to the two slots.
const REQUESTS: usize = 20;

/// Texts that requests begin with, so that a slot finds its last prompt again, or has to take it from the prompt cache.
const TEXTS: usize = 3;

/// A server's answers, and what it says about its device's memory.
struct Answers {
    texts: Vec<String>,
    /// Tokens that were found in a slot or in the prompt cache.
    reused: u64,
    log: String,
    /// Length of the log when the first request was sent.
    asked_at: usize,
}

/// Runs both servers and prints one line per check.
pub fn run(place: &Place) -> Result<Counts> {
    let built = native::build(place, Variant::Patched, &["llama-server"])?;
    let model = model::fetch(place)?;
    let program = built.bin_dir().join("llama-server");
    let common = |run: Run| {
        run.args(["-c", "2048", "--parallel", "2", "-t", "2", "-cram", "256"])
            .args(["--kv-order", "tiled", "-lv", "5"])
            // The program's own choice leaves a GiB free, which the device does not have.
            .args(["--fit", "off", "-ngl", "99", "-m"])
            .arg(&model)
    };
    let resident = Server::start(place, "server-resident", &program, common)?;
    let resident = answers(resident)?;
    let spilled = Server::start(place, "server-simulated", &program, |run| {
        common(run)
            .args(["--kv-window-cells", "256"])
            .env("ROLLING_KV_SIM", DEVICE)
    })?;
    let spilled = answers(spilled)?;
    let checks = [
        (
            format!(
                "{REQUESTS} answers of two slots on the simulated device are those of a resident cache"
            ),
            (spilled.texts != resident.texts)
                .then(|| format!("{:?}\n{:?}", spilled.texts, resident.texts)),
        ),
        (
            format!("{} tokens of the prompts were found again", spilled.reused),
            (spilled.reused == 0 || spilled.reused != resident.reused)
                .then(|| format!("{} with the resident cache", resident.reused)),
        ),
        (
            "the device staged tiles".to_owned(),
            (!spilled.log.contains("ring of")).then(|| "no line says so".to_owned()),
        ),
        (
            "the device's memory in use stayed the same while it answered".to_owned(),
            grew(&spilled.log, spilled.asked_at),
        ),
    ];
    let mut counts = Counts::default();
    for (claim, wrong) in checks {
        match wrong {
            None => println!("ok  {claim}"),
            Some(ref found) => println!("FAILED: {claim}\n  {found}"),
        }
        counts += Counts::new(u64::from(wrong.is_none()), u64::from(wrong.is_some()), 0);
    }
    Ok(counts)
}

/// Asks a server one request after the other, then both slots at once, and stops it.
fn answers(mut server: Server) -> Result<Answers> {
    server.wait_until_healthy()?;
    let asked_at = server.said()?.len();
    let (mut texts, mut reused) = (Vec::new(), 0);
    for number in 0..REQUESTS {
        let (text, cached) = answer(&server, &request(number, number % 2))?;
        texts.push(text);
        reused += cached;
    }
    // Which tokens share a batch is a matter of time here, so the answers are not compared.
    thread::scope(|scope| {
        let both = [0, 1].map(|slot| {
            let server = &server;
            scope.spawn(move || answer(server, &request(REQUESTS + slot, slot)))
        });
        both.into_iter()
            .try_for_each(|one| one.join().expect("a request does not panic").map(drop))
    })?;
    let log = server.said()?;
    server.stop()?;
    Ok(Answers {
        texts,
        reused,
        log,
        asked_at,
    })
}

/// A text of 300 to 700 tokens to continue.
fn request(number: usize, slot: usize) -> String {
    let pairs = story::pairs(60);
    let begin = number % TEXTS * 12;
    let text = pairs[begin..begin + 24 + number / TEXTS].join(" ");
    json!({
        "prompt": text, "n_predict": 8, "temperature": 0, "cache_prompt": true, "id_slot": slot,
    })
    .to_string()
}

/// The text of the answer, and how many tokens of the prompt were there already.
fn answer(server: &Server, request: &str) -> Result<(String, u64)> {
    let body = server.body("/completion", request)?;
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    let text = answer["content"].as_str().filter(|text| !text.is_empty());
    match (
        text,
        answer["tokens_cached"].as_u64(),
        answer["tokens_evaluated"].as_u64(),
    ) {
        (Some(text), Some(_), Some(evaluated)) => {
            let computed = answer["timings"]["prompt_n"].as_u64().unwrap_or(evaluated);
            Ok((text.to_owned(), evaluated.saturating_sub(computed)))
        }
        _ => Err(server.wrong(format!("the answer holds no text: {body}"))),
    }
}

/// What the device says when its memory is taken or given back: `SIM: 123 bytes of device memory in use`.
fn in_use(log: &str) -> Vec<u64> {
    let lines = log
        .lines()
        .filter_map(|line| line.split_once(" bytes of device memory in use"));
    lines
        .filter_map(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .collect()
}

/// `None` if no byte more was in use after `asked_at` than before.
fn grew(log: &str, asked_at: usize) -> Option<String> {
    let asked_at = (asked_at..log.len()).find(|&at| log.is_char_boundary(at))?;
    let (before, after) = log.split_at(asked_at);
    let Some(&ready) = in_use(before).last() else {
        return Some("no line tells of the device's memory".into());
    };
    let most = in_use(after).into_iter().max().unwrap_or(ready);
    (most > ready).then(|| format!("{ready} bytes when it was ready, {most} later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_seen_and_a_log_without_figures_is_no_pass() {
        let ready = "0.1 D SIM: 100 bytes of device memory in use\n0.2 D SIM: 250 bytes of device memory in use\n";
        let steady = format!("{ready}0.3 D SIM: 240 bytes of device memory in use\n");
        assert_eq!(grew(&steady, ready.len()), None);
        assert_eq!(grew(&format!("{ready} "), ready.len()), None);
        let more = format!("{ready}0.3 D SIM: 260 bytes of device memory in use\n");
        assert!(grew(&more, ready.len()).unwrap().contains("260 later"));
        assert!(grew("nothing at all", 3).is_some());
    }

    #[test]
    fn requests_of_one_text_grow() {
        let prompt = |number| {
            let request: Value = serde_json::from_str(&request(number, 0)).unwrap();
            request["prompt"].as_str().unwrap().to_owned()
        };
        assert!(prompt(3).starts_with(&prompt(0)) && prompt(3) != prompt(0));
        assert!(!prompt(1).starts_with(&prompt(0)));
    }
}
