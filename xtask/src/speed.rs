//! `cargo xtask speed`: whole programs, the patched llama-bench over the unpatched one, in turns within one run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::Variant;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::model;
use crate::native;
use crate::place::Place;
use crate::process::Run;

/// The longest that one program may take.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Tokens of a prompt.
const PROMPT: u64 = 512;

/// Rows are a prompt or a generation, with an empty cache or behind a text.
const PROMPT_AT_0: usize = 0;
const DECODE_AT_0: usize = 1;
const PROMPT_BEHIND: usize = 2;
const DECODE_BEHIND: usize = 3;
const ROWS: usize = 4;

/// What is measured.
struct Contestant {
    name: &'static str,
    patched: bool,
    options: fn(depth: u64) -> Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

const CONTESTANTS: [Contestant; 5] = [
    Contestant {
        name: "unpatched",
        patched: false,
        options: |_| Vec::new(),
    },
    Contestant {
        name: "patched, no option",
        patched: true,
        options: |_| Vec::new(),
    },
    Contestant {
        name: "order auto, all in the window",
        patched: true,
        options: |depth| {
            words(&format!(
                "--kv-window-cells {} --kv-order auto",
                2 * (depth + PROMPT)
            ))
        },
    },
    Contestant {
        name: "order tiled, all in the window",
        patched: true,
        options: |depth| {
            words(&format!(
                "--kv-window-cells {} --kv-order tiled --kv-tail-tile 256",
                2 * (depth + PROMPT)
            ))
        },
    },
    Contestant {
        name: "order tiled, a quarter in the window",
        patched: true,
        options: |depth| {
            words(&format!(
                "--kv-window-cells {} --kv-order tiled --kv-tail-tile 256",
                depth / 4
            ))
        },
    },
];

/// Tokens per second of each row.
type Speeds = [f64; ROWS];

/// Measures all in `turns` turns, after one that does not count, and prints medians and ratios.
pub fn run(place: &Place, turns: usize, depth: u64, threads: usize) -> Result<()> {
    let model = model::fetch(place)?;
    let program = |variant| -> Result<PathBuf> {
        let built = native::build(place, variant, &["llama-bench"])?;
        Ok(built.bin_dir().join("llama-bench"))
    };
    let (patched, stock) = (program(Variant::Patched)?, program(Variant::Stock)?);
    println!(
        "{}, {threads} threads, {turns} turns; tokens per second x over unpatched in the same turn (medians), and the best turn over unpatched's best",
        model.file_name().unwrap_or_default().to_string_lossy()
    );

    let mut found: Vec<Vec<Speeds>> = vec![Vec::new(); CONTESTANTS.len()];
    for turn in 0..=turns {
        // Whoever goes first finds another machine than whoever goes last.
        for place in 0..CONTESTANTS.len() {
            let at = (place + turn) % CONTESTANTS.len();
            let contestant = &CONTESTANTS[at];
            eprintln!("turn {turn} of {turns}: {}", contestant.name);
            let program = if contestant.patched { &patched } else { &stock };
            let options = (contestant.options)(depth);
            let speeds = measure(program, &model, &options, depth, threads)?;
            if turn > 0 {
                found[at].push(speeds);
            }
        }
    }
    print(&found, depth);
    Ok(())
}

fn measure(
    program: &Path,
    model: &Path,
    options: &[String],
    depth: u64,
    threads: usize,
) -> Result<Speeds> {
    let ended = Run::new(program)
        .arg("-m")
        .arg(model)
        .args(["-p", &PROMPT.to_string(), "-n", &decoded(depth).to_string()])
        .args(["-d", &depths(depth), "-r", "1", "-o", "json"])
        .args(["-fa", "on", "-t", &threads.to_string()])
        .args(options)
        .limit(LIMIT)
        .quietly()?
        .success()?;
    speeds(&String::from_utf8_lossy(&ended.stdout), depth).ok_or_else(|| {
        Error::wrong(
            format!("{} did not print the four rows", program.display()),
            "run it with -o json yourself and look",
        )
    })
}

/// Tokens decoded: with an empty cache as many as take about a second, so that a hiccup of the machine is not all of it.
fn decoded(depth: u64) -> u64 {
    if depth == 0 { 192 } else { 48 }
}

/// An empty cache, and the text.
fn depths(depth: u64) -> String {
    match depth {
        0 => "0".to_owned(),
        depth => format!("0,{depth}"),
    }
}

fn speeds(json: &str, depth: u64) -> Option<Speeds> {
    let rows: Value = serde_json::from_str(json).ok()?;
    let speed = |prompt: u64, behind: u64| {
        rows.as_array()?
            .iter()
            .find(|row| row["n_prompt"] == prompt && row["n_depth"] == behind)
            .and_then(|row| row["avg_ts"].as_f64())
    };
    let mut speeds = [0.0; ROWS];
    speeds[PROMPT_AT_0] = speed(PROMPT, 0)?;
    speeds[DECODE_AT_0] = speed(0, 0)?;
    speeds[PROMPT_BEHIND] = speed(PROMPT, depth)?;
    speeds[DECODE_BEHIND] = speed(0, depth)?;
    Some(speeds)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn best(speeds: &[Speeds], row: usize) -> f64 {
    speeds.iter().map(|speeds| speeds[row]).fold(0.0, f64::max)
}

fn print(found: &[Vec<Speeds>], depth: u64) {
    println!(
        "\n{:<38} {:>20} {:>20} {:>20} {:>20}",
        "",
        "prompt",
        "decode",
        format!("prompt at {depth}"),
        format!("decode at {depth}")
    );
    for (contestant, speeds) in CONTESTANTS.iter().zip(found) {
        let cells = (0..ROWS).map(|row| {
            let own = median(speeds.iter().map(|speeds| speeds[row]));
            let ratio = median(
                speeds
                    .iter()
                    .zip(&found[0])
                    .map(|(own, stock)| own[row] / stock[row]),
            );
            let best = best(speeds, row) / best(&found[0], row);
            format!("{own:>6.1} x {ratio:>5.3} {best:>5.3}")
        });
        let cells: Vec<String> = cells.map(|cell| format!("{cell:>20}")).collect();
        println!("{:<38} {}", contestant.name, cells.join(" "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_found_by_its_prompt_and_its_depth() {
        let row = |prompt: u64, depth: u64, speed: f64| {
            format!(r#"{{"n_prompt":{prompt},"n_gen":0,"n_depth":{depth},"avg_ts":{speed}}}"#)
        };
        let rows = [
            row(512, 4096, 3.0),
            row(0, 0, 2.0),
            row(512, 0, 1.0),
            row(0, 4096, 4.0),
        ];
        let json = format!("[{}]", rows.join(","));
        assert_eq!(speeds(&json, 4096), Some([1.0, 2.0, 3.0, 4.0]));
        assert_eq!(speeds(&json, 1024), None);
        assert_eq!(speeds("", 4096), None);
        assert_eq!(speeds(&json, 0), Some([1.0, 2.0, 1.0, 2.0]));
    }
}
