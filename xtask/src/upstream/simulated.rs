//! Upstream's own tests on the simulated device. Its arithmetic is the CPU's, so what they test is the way there: offloading,
//! copies, queues and, with a window, the staging ring.

use std::path::Path;

use super::{ARCHITECTURES, Bench, agree, parse, save_log};
use crate::archs;
use crate::error::{Error, Result};
use crate::process::Run;
use crate::report::Counts;

/// What the device is.
const DEVICE: &str = "mem=2GiB,link=20GB/s,latency=1us";

/// What its rows are called.
const NAME: &str = "simulated device";

/// Every architecture, compared with the CPU.
pub fn architectures(bench: &Bench) -> Result<Counts> {
    run(bench, "test-llama-archs-sim.log", |run| run, ARCHITECTURES)
}

/// The same with a window of 64 cells, for the architectures that take one.
pub fn spilled_architectures(bench: &Bench, root: &Path) -> Result<Counts> {
    let (refused, cases) = archs::refused(root)?;
    let others = format!("^(?!(?:{})$).*$", refused.join("|"));
    run(
        bench,
        "test-llama-archs-sim-spilled.log",
        |run| {
            run.args(["-a", &others])
                .env("ROLLING_KV_FORCE_WINDOW", "64")
        },
        ARCHITECTURES - cases,
    )
}

fn run(
    bench: &Bench,
    log: &str,
    options: impl FnOnce(Run) -> Run,
    expected: u64,
) -> Result<Counts> {
    let program = bench
        .with_backends("test-llama-archs")
        .args(["-s", "1234"])
        .env("ROLLING_KV_SIM", DEVICE);
    let ended = options(program).quietly()?;
    save_log(bench, log, &ended)?;
    let rows = parse::archs_of(&ended.text, NAME);
    if rows.passed + rows.failed != expected {
        let what = format!(
            "test-llama-archs executed {} cases on the simulated device where {expected} are expected",
            rows.passed + rows.failed
        );
        return Err(Error::wrong(
            what,
            format!("see {}", bench.scratch.join(log).display()),
        ));
    }
    agree(&ended, rows)
}

/// What the device computes, compared with the CPU.
pub fn backend_ops(bench: &Bench) -> Result<Counts> {
    let ended = bench
        .program("test-backend-ops")
        .args(["test", "-b", "SIM0", "-o"])
        .arg("SET_ROWS,ROPE,CPY,MUL_MAT,FLASH_ATTN_EXT")
        .env("ROLLING_KV_SIM", DEVICE)
        .quietly()?;
    save_log(bench, "test-backend-ops-sim.log", &ended)?;
    agree(&ended, parse::backend_ops(&ended.text))
}
