//! Slot files of a server with a window: a damaged one, a cut one and one of another kind of cache are refused, and the other slot goes
//! on as if nothing had been.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::place::Place;
use crate::report::Counts;
use crate::server::Server;
use crate::story;

/// What the runs need.
pub struct Files<'a> {
    pub place: &'a Place,
    pub server: PathBuf,
    pub model: PathBuf,
}

const SAVED: &str = "whole.bin";
const SLOT_CELLS: &str = "256";
const WINDOW: &[&str] = &["--kv-window-cells", "64"];

fn text(from: usize) -> String {
    story::pairs(60)[from..from + 6].join(" ")
}

fn ask(server: &Server, slot: usize, prompt: &str) -> Result<Value> {
    let body = json!({
        "prompt": prompt, "n_predict": 8, "temperature": 0, "id_slot": slot, "cache_prompt": true, "ignore_eos": true, "return_tokens": true,
    });
    let answer = server.body("/completion", &body.to_string())?;
    serde_json::from_str(&answer).map_err(|_| server.wrong(format!("no JSON: {answer:.200}")))
}

/// Tokens restored, or what the server says instead.
fn restore(server: &Server, file: &str) -> std::result::Result<u64, String> {
    let body = json!({ "filename": file }).to_string();
    let answer = server
        .body("/slots/1?action=restore", &body)
        .map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::Null);
    answer["n_restored"]
        .as_u64()
        .ok_or_else(|| answer.to_string())
}

impl Files<'_> {
    fn start(&self, name: &str, folder: &Path, options: &[&str]) -> Result<Server> {
        let folder = folder.display().to_string();
        let mut server = Server::start(self.place, name, &self.server, |run| {
            run.args(["-t", "2", "-c", "512", "--parallel", "2"])
                .args(["--no-kv-unified", "--kv-order", "tiled", "--kv-tail-tile"])
                .args(["32", "-lv", "4", "-n", SLOT_CELLS, "--slot-save-path"])
                .arg(&folder)
                .args(options)
                .arg("-m")
                .arg(&self.model)
        })?;
        server.wait_until_healthy()?;
        Ok(server)
    }

    /// Saves a slot's file with one server, damages copies of it, and gives them to servers of two kinds.
    pub fn run(&self) -> Result<Counts> {
        let folder = self.place.logs().join("slot-files");
        fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
        let mut counts = Counts::default();
        let mut said = |claim: &str, wrong: Option<String>| {
            match &wrong {
                None => println!("ok  {claim}"),
                Some(found) => println!("FAILED: {claim}\n  {found}"),
            }
            counts += Counts::new(u64::from(wrong.is_none()), u64::from(wrong.is_some()), 0);
        };

        // Without a window, so that a window takes what another server saved.
        let mut server = self.start("slot-files-save", &folder, &[])?;
        ask(&server, 1, &text(0))?;
        server.body(
            "/slots/1?action=save",
            &json!({ "filename": SAVED }).to_string(),
        )?;
        server.stop()?;
        let damaged = damage(&folder)?;

        let mut server = self.start("slot-files-window", &folder, WINDOW)?;
        let alone = ask(&server, 0, &text(10))?;
        for (file, line) in &damaged {
            let refused = restore(&server, file);
            let log = server.said()?;
            let wrong = match refused {
                Ok(tokens) => Some(format!("{tokens} tokens were restored")),
                Err(text) if !text.contains("400") => Some(text),
                Err(_) if !log.contains(line) => Some(format!("the log has no {line:?}")),
                Err(_) => None,
            };
            said(&format!("slot files: {file} is refused"), wrong);
        }
        let again = ask(&server, 0, &text(10))?;
        said(
            "slot files: the other slot says the same, and computes one token of its prompt",
            (again["tokens"] != alone["tokens"] || again["timings"]["prompt_n"] != 1)
                .then(|| format!("{again:.300}\n  {alone:.300}")),
        );
        let whole = restore(&server, SAVED);
        said(
            "slot files: one that a server without a window saved is restored",
            match whole {
                Ok(tokens) if tokens > 0 => None,
                Ok(_) => Some("no token was restored".into()),
                Err(text) => Some(text),
            },
        );
        server.stop()?;

        let other = [WINDOW, &["-ctk", "q8_0", "-ctv", "q8_0"]].concat();
        let mut server = self.start("slot-files-type", &folder, &other)?;
        let refused = restore(&server, SAVED);
        let named = server
            .said()?
            .contains("another model, or with another type");
        said(
            "slot files: one of another type of cache is refused",
            (refused.is_ok() || !named).then(|| format!("{refused:?}")),
        );
        server.stop()?;
        Ok(counts)
    }
}

/// Copies of the saved file that must not be restored, and what the log says of each.
fn damage(folder: &Path) -> Result<Vec<(&'static str, &'static str)>> {
    let path = folder.join(SAVED);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(Error::file("write", &path))
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() * 2 / 3] ^= 4;
    write("flipped.bin", &flipped)?;
    write("cut.bin", &bytes[..bytes.len() / 2])?;
    write("unsealed.bin", &bytes[..bytes.len() - 32])?;
    Ok(vec![
        ("flipped.bin", "is damaged"),
        ("cut.bin", "has no seal"),
        ("unsealed.bin", "has no seal"),
    ])
}
