//! `cargo xtask demo`: from a fresh clone to an answer of a real model, in one command.

use std::io::{self, IsTerminal};
use std::time::Instant;

use rolling_kv_stage::Variant;

use crate::cargo;
use crate::error::Result;
use crate::model;
use crate::native;
use crate::needle;
use crate::place::Place;
use crate::process::Run;
use crate::setup;

const QUESTION: &str = "What is the capital of France?";

const STEPS: usize = 6;

/// Announces and times the steps, on standard error.
struct Steps {
    number: usize,
    started: Instant,
}

impl Steps {
    fn step<T>(&mut self, what: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        self.number += 1;
        eprintln!("[{}/{STEPS}] {what}", self.number);
        let started = Instant::now();
        let result = body()?;
        eprintln!(
            "[{}/{STEPS}] done in {:.1} s",
            self.number,
            started.elapsed().as_secs_f64()
        );
        Ok(result)
    }
}

/// Does what is missing, then asks the model twice; its two answers are all that goes to standard output.
pub fn run(place: &Place) -> Result<()> {
    let mut steps = Steps {
        number: 0,
        started: Instant::now(),
    };
    steps.step("tools: cmake, ninja, libclang, compilers", || {
        setup::ensure(place)
    })?;
    steps.step(
        "llama.cpp, patched (the first time takes some minutes)",
        || native::build(place, Variant::Patched, &[]),
    )?;
    let program = steps.step("the crate and its program", || cargo::program(place))?;
    let model = steps.step("the model SmolLM2-135M", || model::fetch(place))?;
    steps.step("a question", || {
        eprintln!("      Q: {QUESTION}");
        let ask = [
            "run", "--chat", "--temp", "0", "-n", "64", "-p", QUESTION, "-m",
        ];
        Run::new(&program)
            .args(ask)
            .arg(&model)
            .dir(&place.root)
            .attached()?;
        // The program ends a text with a line feed on a terminal only.
        if !io::stdout().is_terminal() {
            println!();
        }
        Ok(())
    })?;
    let shown = steps.step(
        "a needle in a long text, with most of the cache in host memory",
        || needle::run(place, &program, &model),
    )?;
    eprintln!("shown: {shown}");
    eprintln!(
        "all in {:.1} s; try `{} --help` next",
        steps.started.elapsed().as_secs_f64(),
        program.display()
    );
    Ok(())
}
