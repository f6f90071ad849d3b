//! Programs that move tokens to other positions while most of their cache lies in host memory, against the same programs with a
//! resident cache, both in order tiled: every token must be the same.

use std::path::PathBuf;

use rolling_kv_stage::Variant;
use serde_json::{Value, json};

use crate::error::Result;
use crate::model;
use crate::native;
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;
use crate::server::Server;
use crate::slot_files::Files;
use crate::story;

/// What the runs need.
struct Bench<'a> {
    place: &'a Place,
    bin: PathBuf,
    model: PathBuf,
    counts: Counts,
}

/// A request, and what the answer must show beside its tokens.
struct Request {
    name: &'static str,
    path: &'static str,
    body: Value,
    shows: fn(&Value) -> Option<String>,
}

/// What a server says to a list of requests.
struct Answers {
    bodies: Vec<Value>,
    log: String,
}

/// Runs every pair and prints one line per check.
pub fn run(place: &Place) -> Result<Counts> {
    let built = native::build(
        place,
        Variant::Patched,
        &["llama-server", "llama-completion"],
    )?;
    let mut bench = Bench {
        place,
        bin: built.bin_dir().to_path_buf(),
        model: model::fetch(place)?,
        counts: Counts::default(),
    };
    bench.context_shift_and_reuse()?;
    bench.unified_with_a_draft()?;
    bench.guard()?;
    bench.self_extend()?;
    bench.counts += Files {
        place,
        server: bench.bin.join("llama-server"),
        model: bench.model.clone(),
    }
    .run()?;
    Ok(bench.counts)
}

/// A slot of the first server holds this much.
const SLOT_CELLS: usize = 256;

/// The text of some pairs, behind a word that no other request has.
fn prompt(nonce: usize, pairs: std::ops::Range<usize>) -> String {
    format!("Story {nonce}. {}", story::pairs(60)[pairs].join(" "))
}

fn completion(prompt: impl Into<Value>, slot: usize, n_predict: usize) -> Value {
    json!({
        "prompt": prompt.into(), "n_predict": n_predict, "temperature": 0, "cache_prompt": true, "id_slot": slot,
        "ignore_eos": true, "return_tokens": true,
    })
}

fn nothing_more(_: &Value) -> Option<String> {
    None
}

fn truncated(answer: &Value) -> Option<String> {
    (answer["truncated"] != true).then(|| "its context was never shifted".into())
}

/// Tokens of the prompt that were not computed.
fn reused(answer: &Value) -> u64 {
    answer["timings"]["cache_n"].as_u64().unwrap_or(0)
}

fn reuses_most(answer: &Value) -> Option<String> {
    let computed = answer["timings"]["prompt_n"].as_u64().unwrap_or(u64::MAX);
    (reused(answer) < 2 * computed)
        .then(|| format!("{} tokens reused, {computed} computed", reused(answer)))
}

impl Bench<'_> {
    fn said(&mut self, claim: &str, wrong: Option<String>) {
        match &wrong {
            None => println!("ok  {claim}"),
            Some(found) => println!("FAILED: {claim}\n  {found}"),
        }
        self.counts += Counts::new(u64::from(wrong.is_none()), u64::from(wrong.is_some()), 0);
    }

    /// Sends the requests to a server with these options.
    fn ask(&self, name: &str, options: &[&str], requests: &[Request]) -> Result<Answers> {
        let program = self.bin.join("llama-server");
        let mut server = Server::start(self.place, name, &program, |run| {
            run.args([
                "-t",
                "2",
                "--kv-order",
                "tiled",
                "--kv-tail-tile",
                "32",
                "-lv",
                "4",
            ])
            .args(options)
            .arg("-m")
            .arg(&self.model)
        })?;
        server.wait_until_healthy()?;
        let mut bodies = Vec::new();
        for request in requests {
            let body = server.body(request.path, &request.body.to_string())?;
            bodies.push(serde_json::from_str(&body).unwrap_or(Value::String(body)));
        }
        let log = server.said()?;
        server.stop()?;
        Ok(Answers { bodies, log })
    }

    /// The requests to a resident server and to one with a window; one check a request.
    fn compare(
        &mut self,
        name: &str,
        options: &[&str],
        window: &str,
        requests: &[Request],
    ) -> Result<()> {
        let resident = self.ask(&format!("{name}-resident"), options, requests)?;
        let spill = [options, &["--kv-window-cells", window]].concat();
        let spilled = self.ask(&format!("{name}-spilled"), &spill, requests)?;
        let pairs = spilled.bodies.iter().zip(&resident.bodies);
        for (request, (found, expected)) in requests.iter().zip(pairs) {
            let tokens = found["tokens"].as_array().map_or(0, Vec::len);
            let differs = (found["tokens"] != expected["tokens"]
                || found["content"] != expected["content"]
                || reused(found) != reused(expected))
            .then(|| format!("{found:.300}\n  {expected:.300}"));
            let claim = format!(
                "{name}, {}: {tokens} tokens, {} of the prompt reused, as with a resident cache",
                request.name,
                reused(found)
            );
            self.said(&claim, differs.or_else(|| (request.shows)(found)));
        }
        let without_tail = !spilled.log.contains("layers with a tail");
        self.said(
            &format!("{name}: its layers have tails"),
            without_tail.then(|| "no line says so".into()),
        );
        Ok(())
    }

    /// Two slots with buffers of their own, a quarter of each in the window.
    fn context_shift_and_reuse(&mut self) -> Result<()> {
        let folder = self.place.logs().join("slots");
        std::fs::create_dir_all(&folder).map_err(crate::error::Error::file("make", &folder))?;
        let folder = folder.display().to_string();
        let context = (2 * SLOT_CELLS).to_string();
        let window = (SLOT_CELLS / 4).to_string();
        let moved = [
            prompt(3, 0..3),
            prompt(3, 0..1) + " " + &story::pairs(60)[6..14].join(" "),
        ];
        let reuse = |text: &str| completion(text, 1, 4);
        // The second text leaves out what lies between its beginning and the piece that both have.
        let long = format!("{} {}", moved[0], story::pairs(60)[6..14].join(" "));
        let requests = [
            Request {
                name: "three contexts long",
                path: "/completion",
                body: completion(prompt(1, 0..4), 0, 3 * SLOT_CELLS),
                shows: truncated,
            },
            Request {
                name: "a prompt",
                path: "/completion",
                body: reuse(&long),
                shows: nothing_more,
            },
            Request {
                name: "its beginning and its end",
                path: "/completion",
                body: reuse(&moved[1]),
                shows: reuses_most,
            },
            Request {
                name: "a slot is saved",
                path: "/slots/1?action=save",
                body: json!({"filename": "moved.bin"}),
                shows: |answer| {
                    answer["n_saved"]
                        .as_u64()
                        .is_none_or(|n| n == 0)
                        .then(|| answer.to_string())
                },
            },
            Request {
                name: "another one is erased",
                path: "/slots/0?action=erase",
                body: json!({}),
                shows: nothing_more,
            },
            Request {
                name: "and takes the saved one",
                path: "/slots/0?action=restore",
                body: json!({"filename": "moved.bin"}),
                shows: |answer| {
                    answer["n_restored"]
                        .as_u64()
                        .is_none_or(|n| n == 0)
                        .then(|| answer.to_string())
                },
            },
            Request {
                name: "which goes on",
                path: "/completion",
                body: completion(moved[1].clone() + " And then", 0, 8),
                shows: reuses_most,
            },
        ];
        let options = [
            "-c",
            &context,
            "--parallel",
            "2",
            "--no-kv-unified",
            "--context-shift",
            "--cache-reuse",
            "16",
            "-cram",
            "64",
            "--slot-save-path",
            &folder,
        ];
        self.compare("slots", &options, &window, &requests)
    }

    /// One buffer for both slots, and a draft model whose own cache spills too.
    fn unified_with_a_draft(&mut self) -> Result<()> {
        let model = self.model.display().to_string();
        let drafts = |answer: &Value| {
            let drafted = answer["timings"]["draft_n"].as_u64().unwrap_or(0);
            (drafted == 0).then(|| "nothing was drafted".into())
        };
        let request = |name, nonce, slot| Request {
            name,
            path: "/completion",
            body: completion(prompt(nonce, 4..10), slot, 24),
            shows: drafts,
        };
        let requests = [
            request("a draft in one slot", 11, 0),
            request("and in the other", 12, 1),
        ];
        let options = [
            "-c",
            "768",
            "--parallel",
            "2",
            "--kv-unified",
            "-md",
            &model,
            "--spec-draft-n-max",
            "6",
            "--spec-type",
            "draft-simple",
        ];
        self.compare("unified", &options, "96", &requests)
    }

    /// With the guard, a request ends when its slot is full, and the log says why.
    fn guard(&mut self) -> Result<()> {
        let requests = [Request {
            name: "guarded",
            path: "/completion",
            body: completion(prompt(21, 0..4), 0, 3 * SLOT_CELLS),
            shows: nothing_more,
        }];
        let cells = SLOT_CELLS.to_string();
        let options = [
            "-c",
            &cells,
            "--parallel",
            "1",
            "--context-shift",
            "--kv-shift",
            "guard",
            "--kv-window-cells",
            "64",
        ];
        let answers = self.ask("guard", &options, &requests)?;
        let answer = &answers.bodies[0];
        let evaluated = answer["tokens_evaluated"].as_u64().unwrap_or(0);
        let predicted = answer["tokens_predicted"].as_u64().unwrap_or(0);
        let full = evaluated + predicted;
        self.said(
            &format!("guard: the request ends at {full} of {SLOT_CELLS} cells"),
            (answer["stop_type"] != "limit" || full.abs_diff(SLOT_CELLS as u64) > 2)
                .then(|| format!("{answer:.400}")),
        );
        let line = answers
            .log
            .lines()
            .find(|line| line.contains("context shift and cache reuse are off"));
        let named = line.is_some_and(|line| line.contains("--kv-shift is guard"));
        self.said(
            "guard: one line names the reason",
            (!named).then(|| format!("{line:?}")),
        );
        Ok(())
    }

    /// llama-completion divides positions of groups and moves what follows.
    fn self_extend(&mut self) -> Result<()> {
        let text = |bench: &Self, options: &[&str]| -> Result<String> {
            let run = Run::new(bench.bin.join("llama-completion"))
                .args([
                    "-c",
                    "512",
                    "-n",
                    "48",
                    "-t",
                    "2",
                    "--temp",
                    "0",
                    "-no-cnv",
                    "--simple-io",
                ])
                .args([
                    "--grp-attn-n",
                    "4",
                    "--grp-attn-w",
                    "128",
                    "--kv-order",
                    "tiled",
                ])
                .args(["-p", &prompt(31, 0..12), "-m"])
                .arg(&bench.model)
                .args(options);
            let ended = run.quietly()?.success()?;
            Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
        };
        let resident = text(self, &[])?;
        let spilled = text(self, &["--kv-window-cells", "128"])?;
        self.said(
            &format!(
                "self-extend: {} characters of llama-completion are those with a resident cache",
                spilled.len()
            ),
            (spilled != resident || spilled.is_empty())
                .then(|| format!("{spilled:?}\n  {resident:?}")),
        );
        Ok(())
    }
}
