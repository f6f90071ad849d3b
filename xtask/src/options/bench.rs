//! llama-bench with a window.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Rig;
use super::line::{self, Active};
use crate::error::Result;

/// Tokens of the prompt and of the generation; with a window of 128 cells both reach the tail.
const PROMPT: u64 = 256;
const GENERATED: u64 = 4;

/// Windows and orders that one run measures, as lists.
const WINDOWS: [&str; 2] = ["128", "0"];
const ORDERS: [&str; 2] = ["tiled", "auto"];

pub fn check(rig: &mut Rig) -> Result<()> {
    let ended = rig
        .with_model("llama-bench")
        .args(["-p", &PROMPT.to_string(), "-n", &GENERATED.to_string()])
        .args(["-d", &PROMPT.to_string(), "-r", "1", "-o", "json", "-v"])
        .args(["--kv-window-cells", &WINDOWS.join(",")])
        .args(["--kv-order", &ORDERS.join(",")])
        .quietly()?
        .success()?;
    rig.claim(
        "llama-bench with lists of windows and orders: each is measured, and its row says which it is",
        not_measured(&ended.stdout),
    );
    rig.claim(
        "llama-bench with lists of windows: the lines say the windows",
        not_active(&ended.text),
    );
    Ok(())
}

/// `None` if each window and order has a row for the prompt and one for the generation, each with a speed.
fn not_measured(json: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(json);
    let Ok(Value::Array(rows)) = serde_json::from_str(&text) else {
        return Some(format!("not a list of rows: {text}"));
    };
    let mut found: Vec<_> = rows
        .iter()
        .filter(|row| row["avg_ts"].as_f64().is_some_and(|speed| speed > 0.0))
        .map(|row| {
            let word = |name: &str| row[name].as_str().unwrap_or("none").to_owned();
            (word("kv_window"), word("kv_order"), row["n_gen"].as_u64())
        })
        .collect();
    let mut expected = Vec::new();
    for window in WINDOWS {
        for order in ORDERS {
            for generated in [0, GENERATED] {
                expected.push((window.to_owned(), order.to_owned(), Some(generated)));
            }
        }
    }
    found.sort();
    expected.sort();
    (found != expected).then(|| format!("expected rows for {expected:?}\nfound    {found:?}"))
}

/// `None` if the lines about contexts name every window and no other.
fn not_active(log: &str) -> Option<String> {
    let lines: Vec<Option<Active>> = log
        .lines()
        .filter(|line| line.contains("rolling-kv: window "))
        .map(line::read)
        .collect();
    let windows: BTreeSet<u32> = WINDOWS
        .iter()
        .filter_map(|window| window.parse().ok())
        .collect();
    let named: Option<BTreeSet<u32>> = lines
        .iter()
        .map(|line| {
            let active = line.as_ref()?;
            let same = active.window.0 == active.window.1;
            (same && active.layers_with_tail == active.layers).then_some(active.window.0)
        })
        .collect();
    (named != Some(windows)).then(|| format!("the lines say {lines:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(speed: f64) -> String {
        let mut rows = Vec::new();
        for window in WINDOWS {
            for order in ORDERS {
                for generated in [0, GENERATED] {
                    rows.push(format!(
                        r#"{{"n_gen":{generated},"avg_ts":{speed},"kv_window":"{window}","kv_order":"{order}"}}"#
                    ));
                }
            }
        }
        format!("[{}]", rows.join(","))
    }

    #[test]
    fn every_row_must_be_there_and_have_a_speed() {
        assert_eq!(not_measured(rows(3.5).as_bytes()), None);
        assert!(not_measured(rows(0.0).as_bytes()).is_some());
        assert!(not_measured(rows(3.5).replace("auto", "tiled").as_bytes()).is_some());
        assert!(not_measured(b"[").unwrap().contains("not a list"));
    }

    #[test]
    fn the_lines_must_name_every_window_and_no_other() {
        let line = |window: &str| {
            format!(
                "rolling-kv: window {window} of 512 cells, 30 of 30 layers with a tail, order tiled, tiles of 128 cells; KV \
                 cache 1.00 MiB on the device, 3.00 MiB in host memory\n"
            )
        };
        assert_eq!(not_active(&(line("128") + &line("0"))), None);
        assert!(not_active(&line("128")).is_some());
        assert!(not_active(&(line("128") + &line("0") + &line("256"))).is_some());
        assert!(not_active("").is_some());
    }
}
