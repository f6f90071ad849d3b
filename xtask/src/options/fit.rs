//! `--fit` of llama.cpp's programs on a simulated device that the cache does not fit: without a window the context is made shorter, and with
//! one it stays and the window takes what is free.

use super::line::{self, Active};
use super::{Rig, THREADS};
use crate::error::Result;

/// Weights take 92 MiB, a cache of 8192 cells 180 MiB, and working memory 24 MiB.
const DEVICE: &str = "mem=300MiB,link=16GB/s";
const DEVICE_MIB: f64 = 300.0;
const BESIDE_MIB: f64 = 92.0 + 24.5;

/// What the fit is told to leave free.
const MARGIN: &str = "64";
const MARGIN_MIB: f64 = 64.0;

/// Cells that the model was trained for.
const TRAINED: u32 = 8192;

/// What a run says.
struct Fitted {
    n_ctx: Option<u32>,
    says_so: bool,
    active: Option<Active>,
}

pub fn check(rig: &mut Rig) -> Result<()> {
    let stock = fitted(rig, &[])?;
    rig.claim(
        "--fit without a window, on a device that the cache does not fit: the context is made shorter",
        wrong(&stock, |fit| fit.active.is_none() && fit.n_ctx.is_some_and(|n| n < TRAINED)),
    );
    let auto = fitted(rig, &["--kv-window-cells", "auto"])?;
    rig.claim(
        "--fit --kv-window-cells auto: the context stays, and the window takes what is free but for the margin",
        wrong(&auto, |fit| {
            let left = |active: &Active| DEVICE_MIB - BESIDE_MIB - active.device_mib;
            fit.n_ctx == Some(TRAINED) && fit.says_so && fit.window(|active| (MARGIN_MIB..MARGIN_MIB + 20.0).contains(&left(active)))
        }),
    );
    let target = fitted(rig, &["--kv-vram-target", "40"])?;
    rig.claim(
        "--fit --kv-vram-target 40: the context stays, and the window takes what was asked for",
        wrong(&target, |fit| {
            fit.n_ctx == Some(TRAINED)
                && fit.says_so
                && fit.window(|active| active.device_mib > 36.0 && active.device_mib <= 40.0)
        }),
    );
    let cells = fitted(rig, &["--kv-window-cells", "256", "-c", "4096"])?;
    rig.claim(
        "--fit --kv-window-cells 256 -c 4096: both stay as asked for",
        wrong(&cells, |fit| {
            fit.n_ctx == Some(4096) && fit.window(|active| active.window == (256, 256))
        }),
    );
    Ok(())
}

impl Fitted {
    fn window(&self, expected: impl Fn(&Active) -> bool) -> bool {
        // The fit makes contexts of its own, to measure; the last line is that of the program's.
        self.active.as_ref().is_some_and(expected)
    }
}

fn fitted(rig: &Rig, options: &[&str]) -> Result<Fitted> {
    let run = rig
        .with_model("llama-completion")
        .env("ROLLING_KV_SIM", DEVICE)
        .args([
            "-tb", THREADS, "-p", "Once", "-n", "1", "-b", "128", "-ub", "128",
        ])
        .args([
            "-no-cnv",
            "--no-warmup",
            "--simple-io",
            "--temp",
            "0",
            "-lv",
            "4",
        ])
        .args(["--fit", "on", "-fitt", MARGIN])
        .args(options);
    let text = run.quietly()?.success()?.text;
    Ok(Fitted {
        n_ctx: n_ctx(&text),
        says_so: text.contains("rolling-kv: fit: the context stays at 8192 cells"),
        active: text.lines().rev().find_map(line::read),
    })
}

/// The length of the last context that was made.
fn n_ctx(text: &str) -> Option<u32> {
    let lines = text.lines().rev();
    let mut values =
        lines.filter_map(|line| line.split_once("llama_context: n_ctx ")?.1.split_once("= "));
    values.next()?.1.trim().parse().ok()
}

fn wrong(found: &Fitted, expected: impl Fn(&Fitted) -> bool) -> Option<String> {
    (!expected(found)).then(|| {
        format!(
            "a context of {:?} cells, said so: {}, {:?}",
            found.n_ctx, found.says_so, found.active
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_context_is_the_one_that_counts() {
        let text = "x llama_context: n_ctx                 = 8192\ny llama_context: n_ctx_seq             = 1\n\
            z llama_context: n_ctx                 = 5376\n";
        assert_eq!(n_ctx(text), Some(5376));
        assert_eq!(n_ctx("nothing"), None);
    }
}
