//! llama-completion with a window: the text does not change, and a line says what is active.

use super::line::{self, Active};
use super::{OPTIONS, Rig, THREADS, unequal};
use crate::error::Result;

/// Cells of the context.
const CONTEXT: u32 = 1024;

/// Level of the log at which llama.cpp's programs show the library's information lines.
const LOG_LEVEL: &str = "4";

/// A continuation at temperature 0, and what the log says.
pub struct Completion {
    pub text: String,
    pub log: String,
    active: Option<Active>,
}

pub fn check(rig: &mut Rig) -> Result<()> {
    let resident = complete(rig, &["--kv-order", "tiled"], &[])?;
    rig.claim(
        "llama-completion, order tiled, resident: no layer has a tail",
        differs(&resident, |a| {
            a.window == (CONTEXT, CONTEXT) && a.layers_with_tail == 0 && a.host_mib == 0.0
        }),
    );
    let options = ["--kv-order", "tiled", "--kv-window-cells", "256"];
    let spilled = complete(rig, &options, &[])?;
    rig.claim(
        "llama-completion, a quarter of the cells in the window: the line says it",
        differs(&spilled, |a| {
            a.window == (256, 256)
                && a.cells == CONTEXT
                && a.layers_with_tail == a.layers
                && a.order == "tiled"
                && (a.host_mib - 3.0 * a.device_mib).abs() < 0.02
        }),
    );
    rig.claim(
        "llama-completion, a quarter of the cells in the window: the text of the resident cache",
        unequal(&spilled.text, &resident.text).or_else(|| empty(&spilled)),
    );
    environment(rig, &spilled)?;
    placements(rig, &resident)?;
    off(rig)
}

/// The same request through the environment.
fn environment(rig: &mut Rig, options: &Completion) -> Result<()> {
    let environment = [(OPTIONS[1].env, "256"), (OPTIONS[4].env, "tiled")];
    let found = complete(rig, &[], &environment)?;
    rig.claim(
        "llama-completion, the window from the environment: the same line and the same text",
        unequal(&found.active, &options.active).or_else(|| unequal(&found.text, &options.text)),
    );
    let overridden = complete(rig, &["--kv-window-cells", "512"], &environment)?;
    rig.claim(
        "llama-completion, an option and a variable: the option wins",
        differs(&overridden, |a| {
            a.window == (512, 512) && a.order == "tiled"
        }),
    );
    Ok(())
}

/// A way to place the cache, as it is named, as it is asked for, and what the line must then say.
type Placement<'a> = (&'a str, &'a [&'a str], fn(&Active) -> bool);

/// The other ways to say what lies where: each is in the line, and none changes the text.
fn placements(rig: &mut Rig, resident: &Completion) -> Result<()> {
    let layers = ["--kv-window-cells", "256", "--kv-resident-layers", "0-9"];
    let target = ["--kv-vram-target", "12"];
    let all_in_tail = ["--kv-window-cells", "0"];
    let cases: [Placement<'_>; 3] = [
        ("--kv-resident-layers 0-9", &layers, |a| {
            a.window == (256, CONTEXT) && a.layers_with_tail == a.layers - 10
        }),
        ("--kv-vram-target 12", &target, |a| {
            a.device_mib <= 12.0 && a.device_mib > 6.0 && a.layers_with_tail == a.layers
        }),
        ("--kv-window-cells 0", &all_in_tail, |a| {
            a.window == (0, 0) && a.device_mib == 0.0
        }),
    ];
    for (name, options, expected) in cases {
        let mut all = vec!["--kv-order", "tiled"];
        all.extend(options);
        let found = complete(rig, &all, &[])?;
        let wrong = differs(&found, expected);
        rig.claim(
            &format!("llama-completion {name}: the line says it, and the text is the resident one"),
            wrong.or_else(|| unequal(&found.text, &resident.text)),
        );
    }
    let tile = complete(
        rig,
        &["--kv-window-cells", "100", "--kv-tail-tile", "64"],
        &[],
    )?;
    rig.claim(
        "llama-completion --kv-tail-tile 64: a window of 100 cells is rounded down to one tile",
        differs(&tile, |a| {
            a.tile == 64 && a.window == (64, 64) && a.order == "auto"
        }),
    );
    Ok(())
}

/// Switched off, nothing of it is left.
fn off(rig: &mut Rig) -> Result<()> {
    let stock = complete(rig, &[], &[])?;
    let off = complete(
        rig,
        &["--kv-window-cells", "256", "--kv-residency-mode", "off"],
        &[],
    )?;
    let said = [&stock, &off]
        .into_iter()
        .find(|run| run.log.contains("rolling-kv: "))
        .map(|run| format!("a line of ours in the log: {:?}", run.active));
    rig.claim(
        "llama-completion --kv-residency-mode off: no line, and the text of a run without options",
        said.or_else(|| unequal(&off.text, &stock.text)),
    );
    let auto = complete(rig, &["--kv-residency-mode", "window"], &[])?;
    let wrong = differs(&auto, |a| a.order == "auto" && a.layers_with_tail == 0);
    rig.claim(
        "llama-completion --kv-residency-mode window, all fits: the text of a run without options",
        wrong.or_else(|| unequal(&auto.text, &stock.text)),
    );
    Ok(())
}

/// `None` if the log has the line and it says what is expected.
fn differs(found: &Completion, expected: impl Fn(&Active) -> bool) -> Option<String> {
    match &found.active {
        Some(active) if expected(active) => None,
        Some(active) => Some(format!("the line says {active:?}")),
        None => Some("no line, or one that cannot be read, says what is active".into()),
    }
}

fn empty(found: &Completion) -> Option<String> {
    found
        .text
        .trim()
        .is_empty()
        .then(|| "the text is empty".into())
}

pub fn complete(rig: &Rig, options: &[&str], environment: &[(&str, &str)]) -> Result<Completion> {
    let run = rig
        .with_model("llama-completion")
        .args(["-tb", THREADS, "-c", &CONTEXT.to_string(), "-n", "24"])
        .args([
            "-no-cnv",
            "--no-display-prompt",
            "--simple-io",
            "--no-escape",
        ])
        .args(["--temp", "0", "-lv", LOG_LEVEL, "-f"])
        .arg(&rig.prompt)
        .args(options);
    let run = environment
        .iter()
        .fold(run, |run, (name, value)| run.env(name, value));
    let ended = run.quietly()?.success()?;
    Ok(Completion {
        text: String::from_utf8_lossy(&ended.stdout).into_owned(),
        active: line::read(&ended.text),
        log: ended.text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_line_or_with_another_is_told_apart() {
        let mut run = Completion {
            text: String::new(),
            log: String::new(),
            active: None,
        };
        assert!(differs(&run, |_| true).unwrap().contains("no line"));
        assert!(empty(&run).is_some());
        run.active = line::read(
            "rolling-kv: window 64 of 256 cells, 30 of 30 layers with a tail, order tiled, tiles of 32 cells; KV cache \
             1.41 MiB on the device, 4.22 MiB in host memory",
        );
        assert_eq!(differs(&run, |a| a.tile == 32), None);
        assert!(
            differs(&run, |a| a.tile == 64)
                .unwrap()
                .contains("tile: 32")
        );
    }
}
