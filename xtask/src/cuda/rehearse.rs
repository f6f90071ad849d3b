//! `cargo xtask cuda rehearse`: the CUDA module's host side, on a runtime that computes nothing.
//!
//! Kernels do nothing there, so that no number of a model comes out; copies, streams, events, graphs and host functions are what they are on a
//! card. What can be seen is what the host asks for: that the ring, the host engine and captured graphs are engaged, that a step allocates nothing,
//! that every device has a ring of its own, and that a want of memory is an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::cuda::Archs;
use serde_json::Value;

use super::bundle::{self, Contents};
use crate::elf;
use crate::error::{Error, Result};
use crate::native;
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::report::{Counts, Outcome};

/// The runtime and cuBLAS, their symbols' versions, and their names.
const RUNTIME: &str = include_str!("rehearsal/cudart.cpp");
const CUBLAS: &str = include_str!("rehearsal/cublas.c");

const LIMIT: Duration = Duration::from_secs(5 * 60);
const NEXT: &str =
    "read what the program said above; xtask/src/cuda/rehearsal is the runtime it ran on";

/// Tokens of a context, of its window, of the prompt, and the most that are generated.
const CTX: u32 = 2048;
const WINDOW: u32 = 256;

/// Builds what is not up to date, and rehearses.
pub fn run(place: &Place, archs: Option<Archs>) -> Result<()> {
    let counts = counted(place, archs)?;
    println!("{counts}");
    match counts.failed {
        0 => Ok(()),
        _ => Err(Error::wrong("a rehearsal was wrong", NEXT)),
    }
}

/// Rehearses with a module that was built before.
pub fn step(place: &Place) -> Result<Outcome> {
    let staged = native::staged_root(place)?;
    match built(staged.parent().unwrap_or(&staged))? {
        Some(archs) => Ok(Outcome::Ran(counted(place, Some(archs))?)),
        None => Ok(Outcome::Skipped(
            "no CUDA module was built here: cargo xtask cuda build --arch 90".into(),
        )),
    }
}

/// The cards of the module in `dir` that takes the least to build again.
fn built(dir: &Path) -> Result<Option<Archs>> {
    let mut found: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let entry = entry.map_err(Error::file("list", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(cards) = name.strip_prefix("build-cuda-")
            && entry.path().join("bin/libggml-cuda.so").exists()
        {
            found.push(cards.replace('-', ","));
        }
    }
    found.sort_by_key(String::len);
    match found.first() {
        Some(cards) => Ok(Some(Archs::parse(cards)?)),
        None => Ok(None),
    }
}

/// Every run, and what was asked of the runtime in it.
fn counted(place: &Place, archs: Option<Archs>) -> Result<Counts> {
    let dir = place.work().join("rehearsal");
    bundle::fill(place, &dir, &Contents::for_rehearsal(archs))?;
    stand_ins(place, &dir)?;
    let stage = Stage { dir };
    let mut counts = Counts::default();
    for (what, check) in CHECKS {
        match check(&stage) {
            Ok(said) => {
                println!("PASS {what}: {said}");
                counts += Counts::ONE;
            }
            Err(error) => {
                println!("FAIL {what}: {error}");
                counts += Counts::new(0, 1, 0);
            }
        }
    }
    Ok(counts)
}

type Check = fn(&Stage) -> Result<String>;

const CHECKS: &[(&str, Check)] = &[
    ("the ring brings tiles", stream),
    ("the host attends beside the device", host),
    ("both share a tail", hybrid),
    ("a tail of a smaller type is brought as it is", smaller_tail),
    ("a step allocates nothing", steady),
    ("without graphs none is launched", ungraphed),
    ("a cache that fits is launched whole", resident),
    ("every device has its ring", two_devices),
    ("without memory for a window all is brought", all_in_tail),
    ("no pinned memory is an error", unpinned),
    ("too little device memory is an error", too_small),
];

/// A folder with the program, the module and the runtime.
struct Stage {
    dir: PathBuf,
}

/// What a run has left: the program's JSON, and what was asked of the runtime.
struct Seen {
    staging: Value,
    asked: Value,
}

impl Seen {
    fn staged(&self, key: &str) -> u64 {
        self.staging[key].as_u64().unwrap_or_default()
    }

    fn asked(&self, key: &str) -> u64 {
        self.asked[key].as_u64().unwrap_or_default()
    }
}

impl Stage {
    fn program(&self, tokens: u32, options: &[&str], env: &[(&str, &str)]) -> Result<Ended> {
        let report = self.dir.join("asked.json");
        let _ = fs::remove_file(&report);
        let mut run = Run::new(self.dir.join("bin/rolling-kv"))
            .args([
                "run",
                "--json",
                "--temp",
                "0",
                "--threads",
                "1",
                "--ignore-eos",
            ])
            .arg("-m")
            .arg(self.dir.join("model.gguf"))
            .arg("--file")
            .arg(self.prompt()?)
            .args(["--ctx", &CTX.to_string(), "-n", &tokens.to_string()])
            .args(options)
            .env_remove("LD_LIBRARY_PATH")
            .env("REHEARSAL_REPORT", &report)
            .limit(LIMIT)
            .next(NEXT);
        for (name, value) in env {
            run = run.env(name, value);
        }
        run.quietly()
    }

    /// A text of about 700 tokens.
    fn prompt(&self) -> Result<PathBuf> {
        let file = self.dir.join("prompt.txt");
        let text = "A line of the log says that all is well. ".repeat(70);
        fs::write(&file, text).map_err(Error::file("write", &file))?;
        Ok(file)
    }

    /// A run that has to succeed, and of which the runtime refused nothing.
    fn seen(&self, tokens: u32, options: &[&str], env: &[(&str, &str)]) -> Result<Seen> {
        let ended = self.program(tokens, options, env)?.success()?;
        let json = |bytes: &[u8]| {
            serde_json::from_slice::<Value>(bytes)
                .map_err(|error| Error::wrong(format!("what a run left is no JSON: {error}"), NEXT))
        };
        let report = self.dir.join("asked.json");
        let asked = json(&fs::read(&report).map_err(Error::file("read", &report))?)?;
        let refused = asked
            .as_object()
            .and_then(|all| all.keys().find(|key| key.starts_with("refused")).cloned());
        if let Some(refused) = refused {
            return Err(Error::wrong(format!("the runtime {refused}"), NEXT));
        }
        let staging = json(&ended.stdout)?["staging"].clone();
        Ok(Seen { staging, asked })
    }

    /// A run that has to fail in order, with this in what it says.
    fn refused(&self, options: &[&str], env: &[(&str, &str)], says: &str) -> Result<String> {
        let ended = self.program(4, options, env)?;
        want(
            ended.status.code() == Some(2),
            &format!("it ended with {}, not with 2", ended.status),
        )?;
        want(
            ended.text.contains(says),
            &format!("it did not say \"{says}\""),
        )?;
        Ok(format!("\"{says}\""))
    }
}

fn want(holds: bool, what: &str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Error::wrong(what.to_owned(), NEXT)),
    }
}

fn spilled<'a>(engine: &'a str, window: &'a str) -> [&'a str; 4] {
    ["--window-cells", window, "--tail-engine", engine]
}

fn stream(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("stream", &WINDOW.to_string()), &[])?;
    let (steps, bytes) = (seen.staged("steps"), seen.staged("bytes"));
    want(
        steps > 60 && bytes > 0,
        &format!("{steps} steps brought {bytes} bytes"),
    )?;
    want(
        seen.asked("bytes to the device") > bytes,
        "the runtime saw fewer bytes than were counted",
    )?;
    want(
        seen.staged("tiles_kept") > 0,
        "no tile was brought ahead of its step",
    )?;
    captured(&seen)?;
    Ok(format!(
        "{bytes} bytes in {steps} steps, {} graph launches",
        seen.staged("graph_launches")
    ))
}

/// What lies between layers is launched as graphs, most of the time.
fn captured(seen: &Seen) -> Result<()> {
    let (counted, asked) = (seen.staged("graph_launches"), seen.asked("graph launches"));
    want(
        counted == asked,
        &format!("{counted} graph launches were counted, and {asked} asked for"),
    )?;
    want(
        seen.asked("graphs captured without work") == 0,
        "an empty graph was captured",
    )?;
    let (replayed, launched) = (
        seen.asked("kernels replayed"),
        seen.asked("kernels launched"),
    );
    want(
        replayed > 2 * launched,
        &format!("{replayed} kernels came of graphs, and {launched} did not"),
    )
}

fn host(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("host", &WINDOW.to_string()), &[])?;
    let (tiles, functions) = (seen.staged("host_tiles"), seen.asked("host functions"));
    want(tiles > 0, "the host attended to no tile")?;
    want(
        functions >= 2 * 30 * 60,
        &format!("{functions} host functions were given to the stream"),
    )?;
    captured(&seen)?;
    Ok(format!("{tiles} tiles, {functions} host functions"))
}

/// Over a slow link, the host is given a part.
fn hybrid(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("hybrid", "128"), &[("REHEARSAL_LINK", "2000")])?;
    let (tiles, bytes) = (seen.staged("host_tiles"), seen.staged("bytes"));
    want(
        tiles > 0 && bytes > 0,
        &format!("{tiles} tiles of the host, {bytes} bytes over the link"),
    )?;
    captured(&seen)?;
    Ok(format!(
        "{tiles} tiles of the host, {bytes} bytes over the link"
    ))
}

/// A row of q8_0 has 34 bytes where one of f16 has 64.
fn smaller_tail(stage: &Stage) -> Result<String> {
    let window = WINDOW.to_string();
    let plain = stage.seen(16, &spilled("stream", &window), &[])?;
    let mut options = spilled("stream", &window).to_vec();
    options.extend(["--tail-type-k", "q8_0", "--tail-type-v", "q8_0"]);
    let small = stage.seen(16, &options, &[])?;
    let (of_f16, of_q8_0) = (plain.staged("bytes"), small.staged("bytes"));
    let share = of_q8_0 as f64 / of_f16 as f64;
    want(
        (share - 34.0 / 64.0).abs() < 0.01,
        &format!("{of_q8_0} bytes of q8_0 were brought, and {of_f16} of f16"),
    )?;
    captured(&small)?;
    Ok(format!("{share:.3} of the bytes"))
}

/// Twice as many steps take no more memory and no more events.
fn steady(stage: &Stage) -> Result<String> {
    for engine in ["stream", "host"] {
        let window = WINDOW.to_string();
        let once = stage.seen(40, &spilled(engine, &window), &[])?;
        let twice = stage.seen(80, &spilled(engine, &window), &[])?;
        for what in [
            "allocations on the device",
            "allocations of pinned memory",
            "events",
        ] {
            let (few, many) = (once.asked(what), twice.asked(what));
            want(
                few == many,
                &format!("{engine}: {few} {what} became {many}"),
            )?;
        }
    }
    Ok("neither memory nor events".to_owned())
}

fn ungraphed(stage: &Stage) -> Result<String> {
    let off = [("GGML_CUDA_DISABLE_GRAPHS", "1")];
    let seen = stage.seen(16, &spilled("stream", &WINDOW.to_string()), &off)?;
    let (counted, asked) = (seen.staged("graph_launches"), seen.asked("graph launches"));
    want(
        counted == 0 && asked == 0,
        &format!("{counted} counted, {asked} asked for"),
    )?;
    Ok("0".to_owned())
}

/// A graph a step, and nothing is brought.
fn resident(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &["--window-cells", &CTX.to_string()], &[])?;
    let launches = seen.asked("graph launches");
    want(
        (40..=64).contains(&launches),
        &format!("{launches} graph launches in 64 steps"),
    )?;
    want(seen.staged("bytes") == 0, "a cache that fits was brought")?;
    Ok(format!("{launches} graph launches"))
}

/// What two rings bring together is what one brings, but for what is on its way for the next step as the run ends; nothing else crosses.
fn two_devices(stage: &Stage) -> Result<String> {
    let options = spilled("stream", "256");
    let one = stage.seen(32, &options, &[])?;
    let two = stage.seen(32, &options, &[("REHEARSAL_DEVICES", "2")])?;
    let (alone, together) = (one.staged("bytes"), two.staged("bytes"));
    want(
        alone.abs_diff(together) < alone / 100,
        &format!("one device was brought {alone} bytes, and two {together}"),
    )?;
    // Each device measures its link with as much as the first.
    let crossed = "bytes to the device";
    want(
        two.asked(crossed) < 2 * one.asked(crossed),
        "more than rows crossed to two devices",
    )?;
    let host = stage.seen(32, &spilled("host", "256"), &[("REHEARSAL_DEVICES", "2")])?;
    want(
        host.staged("host_tiles") > 0,
        "the host attended to no tile of two devices",
    )?;
    captured(&two)?;
    Ok(format!("{together} bytes, one device {alone}"))
}

/// A window for which no memory is left is 0, and the tail is read by the ring all the same.
fn all_in_tail(stage: &Stage) -> Result<String> {
    let options = ["--window-cells", "auto", "--tail-engine", "stream"];
    let seen = stage.seen(32, &options, &[("REHEARSAL_MIB", "250")])?;
    let bytes = seen.staged("bytes");
    want(bytes > 0, "nothing was brought")?;
    captured(&seen)?;
    Ok(format!("{bytes} bytes"))
}

fn unpinned(stage: &Stage) -> Result<String> {
    let options = spilled("stream", "256");
    stage.refused(
        &options,
        &[("GGML_CUDA_NO_PINNED", "1")],
        "GGML_CUDA_NO_PINNED forbids",
    )
}

/// Weights fit, and slots do not.
fn too_small(stage: &Stage) -> Result<String> {
    let options = ["--window-cells", "256", "--ring-depth", "4096"];
    stage.refused(
        &options,
        &[("REHEARSAL_MIB", "300")],
        "for the slots of the staging ring",
    )
}

/// Compiles the runtime into the folder of the module, where the module looks for NVIDIA's.
fn stand_ins(place: &Place, dir: &Path) -> Result<()> {
    let toolkit = super::setup::ensure(place, super::setup::Parts::All)?;
    let include = toolkit
        .include()
        .ok_or_else(|| Error::wrong("the toolkit has no headers", NEXT))?;
    let needed = elf::needed(&dir.join("bin/libggml-cuda.so"))?;
    for name in needed.into_iter().filter(|name| name.starts_with("libcu")) {
        let (source, prefix, compiler) = match name.starts_with("libcudart") {
            true => (("cudart.cpp", RUNTIME), "cuda*; __cuda", "c++"),
            false => (("cublas.c", CUBLAS), "cublas", "cc"),
        };
        let file = dir.join(source.0);
        fs::write(&file, source.1).map_err(Error::file("write", &file))?;
        let map = dir.join(format!("{name}.map"));
        let versions = format!("{name} {{ global: {prefix}*; local: *; }};\n");
        fs::write(&map, versions).map_err(Error::file("write", &map))?;
        Run::new(compiler)
            .args([
                "-O1",
                "-shared",
                "-fPIC",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
                "-isystem",
            ])
            .arg(&include)
            .arg(&file)
            .arg(format!(
                "-Wl,-soname,{name},--version-script,{}",
                map.display()
            ))
            .arg("-o")
            .arg(dir.join("bin").join(&name))
            .quietly()?
            .success()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_for_the_fewest_cards_and_an_empty_folder_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("build-cuda-86/bin")).unwrap();
        fs::create_dir_all(dir.path().join("build")).unwrap();
        assert!(built(dir.path()).unwrap().is_none());
        for cards in ["80-86-89-90", "86-90"] {
            let bin = dir.path().join(format!("build-cuda-{cards}/bin"));
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("libggml-cuda.so"), "").unwrap();
        }
        let found = built(dir.path()).unwrap().unwrap();
        assert_eq!(found.list(), [86, 90]);
    }
}
