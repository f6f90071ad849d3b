//! llama-bench with a window.

use serde_json::Value;

use super::Rig;
use super::line::{self, Active};
use crate::error::Result;

/// Tokens of the prompt and of the generation; with a window of 128 cells both reach the tail.
const PROMPT: u64 = 256;
const GENERATED: u64 = 4;

pub fn check(rig: &mut Rig) -> Result<()> {
    for window in [128, 0] {
        let cells = window.to_string();
        let ended = rig
            .with_model("llama-bench")
            .args(["-p", &PROMPT.to_string(), "-n", &GENERATED.to_string()])
            .args(["-d", &PROMPT.to_string(), "-r", "1", "-o", "json", "-v"])
            .args(["--kv-window-cells", &cells, "--kv-order", "tiled"])
            .quietly()?
            .success()?;
        rig.claim(
            &format!(
                "llama-bench --kv-window-cells {window}: a prompt and a generation are measured"
            ),
            not_measured(&ended.stdout),
        );
        rig.claim(
            &format!("llama-bench --kv-window-cells {window}: the line says it"),
            not_active(&ended.text, window),
        );
    }
    Ok(())
}

/// `None` if there is a row for the prompt and one for the generation, each with a speed.
fn not_measured(json: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(json);
    let Ok(Value::Array(rows)) = serde_json::from_str(&text) else {
        return Some(format!("not a list of rows: {text}"));
    };
    let tests: Vec<_> = rows
        .iter()
        .filter(|row| row["avg_ts"].as_f64().is_some_and(|speed| speed > 0.0))
        .map(|row| (row["n_prompt"].as_u64(), row["n_gen"].as_u64()))
        .collect();
    let expected = [(Some(PROMPT), Some(0)), (Some(0), Some(GENERATED))];
    (tests != expected).then(|| format!("expected rows for {expected:?}\nfound    {tests:?}"))
}

/// `None` if each line about a context names the window. Contexts of other sizes make other lines.
fn not_active(log: &str, window: u32) -> Option<String> {
    let lines: Vec<Option<Active>> = log
        .lines()
        .filter(|line| line.contains("rolling-kv: window "))
        .map(line::read)
        .collect();
    let good = |active: &Option<Active>| {
        active
            .as_ref()
            .is_some_and(|a| a.window == (window, window) && a.layers_with_tail == a.layers)
    };
    (lines.is_empty() || !lines.iter().all(good)).then(|| format!("the lines say {lines:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rows_must_be_there_and_have_a_speed() {
        let rows = |speed: f64| {
            format!(
                r#"[{{"n_prompt":256,"n_gen":0,"avg_ts":90.5}},{{"n_prompt":0,"n_gen":4,"avg_ts":{speed}}}]"#
            )
        };
        assert_eq!(not_measured(rows(3.5).as_bytes()), None);
        assert!(not_measured(rows(0.0).as_bytes()).is_some());
        assert!(not_measured(b"[").unwrap().contains("not a list"));
    }

    #[test]
    fn every_line_must_name_the_window() {
        let line = |window: &str| {
            format!(
                "rolling-kv: window {window} of 512 cells, 30 of 30 layers with a tail, order tiled, tiles of 128 cells; KV \
                 cache 1.00 MiB on the device, 3.00 MiB in host memory\n"
            )
        };
        assert_eq!(not_active(&(line("128") + &line("128")), 128), None);
        assert!(not_active(&(line("128") + &line("256")), 128).is_some());
        assert!(not_active("", 128).is_some());
    }
}
