//! llama-perplexity on one text: placement does not change a digit.

use super::line;
use super::{Rig, THREADS, unequal};
use crate::error::{Error, Result};
use crate::process::Run;

/// Cells of the context, which is the length of a chunk.
const CONTEXT: u32 = 1024;

/// What one run printed: the estimate after each chunk, and the final one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Figure {
    chunks: String,
    estimate: String,
}

/// A way to place the cache, and how many of its cells lie in the window.
struct Placement {
    name: &'static str,
    options: &'static [&'static str],
    /// Cells in the window; `None` where nothing of ours is active.
    window: Option<u32>,
}

const PLACEMENTS: [Placement; 5] = [
    Placement {
        name: "no option",
        options: &[],
        window: None,
    },
    Placement {
        name: "order auto, resident",
        options: &["--kv-residency-mode", "window"],
        window: Some(CONTEXT),
    },
    Placement {
        name: "order tiled, resident",
        options: &["--kv-order", "tiled"],
        window: Some(CONTEXT),
    },
    Placement {
        name: "order tiled, 50 % in the window",
        options: &["--kv-order", "tiled", "--kv-window-cells", "512"],
        window: Some(CONTEXT / 2),
    },
    Placement {
        name: "order tiled, 25 % in the window",
        options: &["--kv-order", "tiled", "--kv-window-cells", "256"],
        window: Some(CONTEXT / 4),
    },
];

pub fn check(rig: &mut Rig) -> Result<()> {
    let mut figures = Vec::new();
    for placement in &PLACEMENTS {
        let (figure, log) = measure(rig, placement)?;
        let active = line::read(&log);
        let wrong = match (placement.window, active) {
            (Some(window), Some(a)) if a.window == (window, window) && a.cells == CONTEXT => None,
            (None, None) if !log.contains("rolling-kv: ") => None,
            (_, active) => Some(format!("the line says {active:?}")),
        };
        rig.claim(
            &format!("llama-perplexity, {}: the line says it", placement.name),
            wrong,
        );
        figures.push(figure);
    }
    println!("\n{}", table(&figures));
    rig.claim(
        "llama-perplexity: order auto with all resident gives the figures of no option",
        unequal(&figures[1], &figures[0]),
    );
    for (placement, figure) in PLACEMENTS.iter().zip(&figures).skip(3) {
        rig.claim(
            &format!(
                "llama-perplexity, {}: the figures of the resident cache",
                placement.name
            ),
            unequal(figure, &figures[2]),
        );
    }
    Ok(())
}

fn measure(rig: &Rig, placement: &Placement) -> Result<(Figure, String)> {
    let run: Run = rig
        .with_model("llama-perplexity")
        .args(["-tb", THREADS, "-c", &CONTEXT.to_string()])
        .args(["-lv", "4", "-f"])
        .arg(&rig.text)
        .args(placement.options);
    let text = run.quietly()?.success()?.text;
    let figure = read(&text).ok_or_else(|| {
        Error::wrong(
            "llama-perplexity printed no estimate that could be read",
            "compare its output with what xtask/src/options/perplexity.rs expects",
        )
    })?;
    Ok((figure, text))
}

/// `[1]3.5563,[2]3.4614,` and `Final estimate: PPL = 3.4438 +/- 0.16500`.
fn read(text: &str) -> Option<Figure> {
    let chunks: String = text
        .lines()
        .filter(|line| line.trim_start().starts_with('[') && line.trim_end().ends_with(','))
        .collect();
    let estimate = text
        .lines()
        .find_map(|line| line.split_once("Final estimate: PPL = "))?
        .1;
    (!chunks.is_empty()).then(|| Figure {
        chunks,
        estimate: estimate.trim().to_owned(),
    })
}

/// The final estimates, one a line.
fn table(figures: &[Figure]) -> String {
    let rows = PLACEMENTS
        .iter()
        .zip(figures)
        .map(|(placement, figure)| format!("{:<34} {}\n", placement.name, figure.estimate));
    format!("{:<34} final estimate of PPL\n", "llama-perplexity -c 1024")
        + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "0.42 I perplexity: 41.58 seconds per pass - ETA 1.03 minutes\n[1]3.5563,[2]3.4614,\n\
        1.10 I Final estimate: PPL = 3.4438 +/- 0.16500\n";

    #[test]
    fn the_estimates_are_read() {
        let figure = read(OUTPUT).unwrap();
        assert_eq!(figure.estimate, "3.4438 +/- 0.16500");
        assert_eq!(figure.chunks, "[1]3.5563,[2]3.4614,");
        assert_ne!(read(&OUTPUT.replace("3.4614", "3.4615")).unwrap(), figure);
        assert_eq!(read("Final estimate: PPL = nan"), None);
        assert_eq!(read("[1]3.5563,\n"), None);
    }

    #[test]
    fn the_table_has_a_row_for_each_placement() {
        let figures = vec![read(OUTPUT).unwrap(); PLACEMENTS.len()];
        assert_eq!(table(&figures).lines().count(), 1 + PLACEMENTS.len());
    }
}
