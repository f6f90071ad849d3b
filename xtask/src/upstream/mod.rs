//! `cargo xtask upstream-tests`: upstream's own tests on the patched tree.

mod parse;
mod server;
mod simulated;

pub use server::free_port;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolling_kv_stage::{Built, Variant};

use crate::archs;
use crate::error::{Error, Result};
use crate::model;
use crate::native::{self, ASKS, UPSTREAM_TESTS};
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::report::Counts;
use crate::setup;

/// Architecture cases that test-llama-archs of the pinned tree runs per device.
const ARCHITECTURES: u64 = 133;

/// Flash-attention cases of the short run: every head size, type, mask, sink, ALiBi and soft-cap at few keys and queries.
const FLASH_ATTENTION_SHORT: &str = "kv=113,nb=3,";

/// Cases of the other operations in the short run: all but the copies out of types that no cache has, whose tables take
/// seconds to make, the rotations of 8192 tokens, repeats of a rotation through a view of its result, and rows past 500,000.
const OPERATIONS_SHORT: &str =
    "^(?!.*type_src=iq[12]|.*,8192,|.*,ff=1,v=[12],|.*,2097121,|.*,524281,)";

/// The longest that one of upstream's programs may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A few minutes.
    Short,
    /// Every case of every operation, also on the simulated device, and the state tests on every architecture.
    Full,
}

/// A suite's name and what came of it.
pub type Row = (&'static str, Result<Counts>);

/// What the suites run on.
struct Bench {
    bin: PathBuf,
    staged: PathBuf,
    scratch: PathBuf,
    model: PathBuf,
    python: PathBuf,
}

/// Whose tests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of our kernels.
    Ours,
    /// Upstream's own.
    Theirs,
    /// All.
    Everyones,
}

/// Builds and runs the suites, prints one line for each, and answers the sum. A suite that ran nothing has failed.
pub fn run(place: &Place, whose: Whose, depth: Depth) -> Result<Counts> {
    let bench = prepare(place, whose)?;
    let mut rows = Vec::new();
    if whose != Whose::Ours {
        rows.extend(theirs(&bench, depth));
    }
    if whose != Whose::Theirs {
        rows.extend(ours(&bench, &place.root));
    }
    if depth == Depth::Full {
        rows.extend(on_the_simulated_device(&bench, &place.root));
    }
    let mut sum = Counts::default();
    println!();
    for (name, result) in rows {
        match result {
            Ok(counts) => {
                println!("{name}: {counts}");
                sum += counts;
            }
            Err(error) => {
                println!("{name}: FAILED: {error}");
                sum += Counts::new(0, 1, 0);
            }
        }
    }
    Ok(sum)
}

fn theirs(bench: &Bench, depth: Depth) -> Vec<Row> {
    let cases = |few| (depth == Depth::Short).then_some(few);
    vec![
        timed("test-llama-archs", || architectures(bench)),
        timed("test-backend-ops SET_ROWS, ROPE, CPY", || {
            backend_ops(bench, "SET_ROWS,ROPE,CPY", cases(OPERATIONS_SHORT))
        }),
        timed("test-backend-ops FLASH_ATTN_EXT", || {
            backend_ops(bench, "FLASH_ATTN_EXT", cases(FLASH_ATTENTION_SHORT))
        }),
        timed("test-alloc", || {
            simple(bench.program("test-alloc"), parse::alloc)
        }),
        timed("test-save-load-state", || {
            simple(bench.with_model("test-save-load-state"), parse::save_load)
        }),
        timed("test-state-restore-fragmented", || {
            simple(
                bench.with_model("test-state-restore-fragmented"),
                parse::restore_fragmented,
            )
        }),
        timed("server tests", || server::run(bench)),
    ]
}

fn ours(bench: &Bench, root: &Path) -> Vec<Row> {
    vec![
        timed("tiled attention", || {
            simple(bench.program("test-rkv-attn"), parse::closing)
        }),
        timed("moves of keys", || {
            simple(bench.program("test-rkv-rope"), parse::closing)
        }),
        timed("lines asked for ahead", || {
            simple(bench.program("test-rkv-ahead"), parse::closing)
        }),
        timed("lines that the kernel asks for", || {
            let mut sum = Counts::default();
            for name in ASKS {
                sum += simple(bench.program(name), parse::closing)?;
            }
            Ok(sum)
        }),
        timed("processors near memory", || {
            simple(bench.program("test-rkv-numa"), parse::closing)
        }),
        timed("a step in pieces", || {
            simple(bench.program("test-rkv-pieces"), parse::closing)
        }),
        timed("CUDA kernels on the host", || {
            simple(bench.program("test-rkv-cuda"), parse::closing)
        }),
        timed("the ring on streams, on paper", || {
            simple(bench.program("test-rkv-stream-ring"), parse::closing)
        }),
        timed("tiles, writes and ring of the simulated device", || {
            let program = bench.program("test-rkv-device").arg("SIM0");
            simple(program.env("ROLLING_KV_SIM", "mem=512MiB"), parse::closing)
        }),
        timed("memory of the simulated device", || {
            let program = bench.program("test-rkv-sim");
            simple(program.env("ROLLING_KV_SIM", "mem=64MiB"), parse::closing)
        }),
        timed("architectures with a spilled cache", || {
            spilled_architectures(bench, root)
        }),
    ]
}

/// What takes longest.
fn on_the_simulated_device(bench: &Bench, root: &Path) -> Vec<Row> {
    vec![
        timed("test-llama-archs, simulated device", || {
            simulated::architectures(bench)
        }),
        timed("test-llama-archs, simulated device, spilled", || {
            simulated::spilled_architectures(bench, root)
        }),
        timed("test-backend-ops, simulated device", || {
            simulated::backend_ops(bench)
        }),
        timed("test-save-load-state, every architecture", || {
            every_architecture(bench)
        }),
    ]
}

fn prepare(place: &Place, whose: Whose) -> Result<Bench> {
    let tools = setup::ensure(place)?;
    let model = model::fetch(place)?;
    let targets: Vec<&str> = UPSTREAM_TESTS
        .iter()
        .copied()
        .chain(["llama-server"])
        .collect();
    let built = native::build(place, Variant::Patched, &targets)?;
    let scratch = place.work().join("upstream-tests");
    fs::create_dir_all(&scratch).map_err(Error::file("make", &scratch))?;
    let staged = native::staged_root(place)?;
    preload(place, &tools.cc, &built, &staged, &scratch)?;
    let python = match whose {
        Whose::Ours => PathBuf::new(), // no suite of ours is driven by it
        _ => server::python(place)?,
    };
    Ok(Bench {
        bin: built.bin_dir().to_owned(),
        staged,
        scratch,
        model,
        python,
    })
}

/// Compiles the library that loads the backend modules for a test that does not, and keeps its threads to the cores there are.
fn preload(
    place: &Place,
    cc: &rolling_kv_stage::tools::Compiler,
    built: &Built,
    staged: &Path,
    scratch: &Path,
) -> Result<()> {
    let source = place.root.join("xtask/preload/load_backends.c");
    Run::new(&cc.program)
        .args(&cc.args)
        .args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", PRELOADED,
        ])
        .arg(source)
        .args(
            ["include", "ggml/include", "rkv/include"]
                .map(|folder| format!("-I{}", staged.join(folder).display())),
        )
        .arg("-L")
        .arg(built.bin_dir())
        .args(["-lllama", "-lggml", "-ldl"])
        .dir(scratch)
        .quietly()?
        .success()
        .map(drop)
}

const PRELOADED: &str = "libload_backends.so";

impl Bench {
    fn program(&self, name: &str) -> Run {
        let next = format!("run {} yourself to see more", self.bin.join(name).display());
        Run::new(self.bin.join(name))
            .dir(&self.scratch)
            .limit(LIMIT)
            .next(next)
    }

    fn with_model(&self, name: &str) -> Run {
        self.program(name).arg("-m").arg(&self.model)
    }

    /// A program that finds the backends registered although it does not load them itself.
    fn with_backends(&self, name: &str) -> Run {
        // The name is relative to the folder that the program runs in, since the variable cannot hold a space.
        self.program(name)
            .env("LD_PRELOAD", format!("./{PRELOADED}"))
            .env("LD_LIBRARY_PATH", &self.bin)
    }
}

fn timed(name: &'static str, body: impl FnOnce() -> Result<Counts>) -> Row {
    let started = Instant::now();
    eprintln!("-- {name}");
    let result = body().and_then(|counts| executed(name, counts));
    eprintln!("-- {name}: {:.1} s", started.elapsed().as_secs_f64());
    (name, result)
}

/// A suite in which nothing was executed tells nothing, so it fails.
fn executed(name: &str, counts: Counts) -> Result<Counts> {
    if counts.passed + counts.failed > 0 {
        return Ok(counts);
    }
    Err(Error::wrong(
        format!("{name} executed no test ({counts})"),
        "run it by hand and see why it skips everything",
    ))
}

/// Runs a program whose failures show in its output; a failing exit code without one is an error.
fn simple(run: Run, counts: fn(&str) -> Counts) -> Result<Counts> {
    let ended = run.quietly()?;
    let counts = counts(&ended.text);
    agree(&ended, counts)
}

/// Exit code and counts must agree.
fn agree(ended: &Ended, counts: Counts) -> Result<Counts> {
    if ended.status.success() || counts.failed > 0 {
        Ok(counts)
    } else {
        Err(ended.failure())
    }
}

fn architectures(bench: &Bench) -> Result<Counts> {
    let ended = bench
        .with_backends("test-llama-archs")
        .args(["-s", "1234"])
        .quietly()?;
    save_log(bench, "test-llama-archs.log", &ended)?;
    let rows = parse::archs(&ended.text);
    let (all, failed) = parse::archs_summary(&ended.text).unwrap_or_default();
    if all < ARCHITECTURES {
        let log = bench.scratch.join("test-llama-archs.log");
        let what = format!(
            "test-llama-archs executed {all} architecture cases where {ARCHITECTURES} are expected"
        );
        return Err(Error::wrong(
            what,
            format!(
                "see {}; after a bump of upstream, correct the number",
                log.display()
            ),
        ));
    }
    agree(&ended, Counts::new(all - failed, failed, rows.skipped))
}

/// Our table of every architecture with a window; it must be the one in docs/.
fn spilled_architectures(bench: &Bench, root: &Path) -> Result<Counts> {
    let ended = bench.program(archs::PROGRAM).quietly()?;
    save_log(bench, "test-rkv-archs.log", &ended)?;
    let counts = agree(&ended, parse::closing(&ended.text))?;
    archs::agree(root, &ended.text)?;
    Ok(counts)
}

fn backend_ops(bench: &Bench, ops: &str, params: Option<&str>) -> Result<Counts> {
    // Named with -b, the CPU backend is compared with its own reference implementation; without, it is skipped.
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .to_string();
    let run = bench
        .program("test-backend-ops")
        .args(["test", "-b", "CPU", "-j", &threads, "-o", ops]);
    let ended = run
        .args(params.iter().flat_map(|params| ["-p", params]))
        .quietly()?;
    save_log(
        bench,
        &format!("test-backend-ops-{}.log", ops.replace(',', "-")),
        &ended,
    )?;
    agree(&ended, parse::backend_ops(&ended.text))
}

/// The state tests on the small random models that test-llama-archs writes.
fn every_architecture(bench: &Bench) -> Result<Counts> {
    let models = bench.scratch.join("models");
    fs::create_dir_all(&models).map_err(Error::file("make", &models))?;
    bench
        .with_backends("test-llama-archs")
        .args(["-s", "1234", "-o"])
        .arg(&models)
        .quietly()?
        .success()?;
    let ended = bench
        .program("test-save-load-state")
        .arg("--models")
        .arg(&models)
        .quietly()?;
    save_log(bench, "test-save-load-state-models.log", &ended)?;
    fs::remove_dir_all(&models).map_err(Error::file("remove", &models))?;
    agree(&ended, parse::save_load_models(&ended.text))
}

fn save_log(bench: &Bench, name: &str, ended: &Ended) -> Result<()> {
    let path = bench.scratch.join(name);
    fs::write(&path, parse::plain(&ended.text)).map_err(Error::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_ran_nothing_is_not_a_pass() {
        let error = executed("ops", Counts::new(0, 0, 40)).unwrap_err();
        assert!(error.to_string().contains("ops executed no test"));
        assert!(executed("ops", Counts::new(1, 0, 40)).is_ok());
    }

    #[test]
    fn a_bad_exit_code_without_a_failed_test_is_an_error() {
        assert!(
            simple(
                Run::new("sh").args(["-c", "echo test_a PASSED; exit 1"]),
                parse::alloc
            )
            .is_err()
        );
        let passed = simple(Run::new("echo").arg("test_a PASSED"), parse::alloc).unwrap();
        assert_eq!(passed, Counts::ONE);
    }
}
