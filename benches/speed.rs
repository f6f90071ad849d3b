//! Speed of this API over llama-bench's, in the same run: prompt and decode tokens per second, on the small real model.
//!
//! `cargo bench` runs it. llama-bench comes from `cargo xtask binaries`; `ROLLING_KV_BINARIES` names another folder.
//! Both sides run in turns, and what counts is the median of the turns' ratios: the machine's mood changes slowly and
//! hits both sides of a turn.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use common::some_tokens;
use rolling_kv::{Backend, Context, ContextParams, Model, ModelParams, Token};

/// Tokens per measurement: long enough to last about two seconds each on two cores.
const PROMPT_TOKENS: usize = 512;
const DECODE_TOKENS: usize = 128;

/// Turns that count, after one that does not.
const TURNS: usize = 9;

/// Below this the bench fails.
const LEAST_RATIO: f64 = 0.99;

#[derive(Clone, Copy)]
struct Rates {
    prompt: f64,
    decode: f64,
}

fn main() -> ExitCode {
    // `cargo test --benches` asks every bench for its tests, and this one has none.
    if std::env::args().any(|arg| arg == "--list" || arg == "--test") {
        return ExitCode::SUCCESS;
    }
    let Some(llama_bench) = llama_bench() else {
        println!(
            "SKIP speed: there is no llama-bench; run `cargo xtask binaries`, or set ROLLING_KV_BINARIES"
        );
        return ExitCode::SUCCESS;
    };
    let Some(model_path) = common::real::path_or_skip("speed") else {
        return ExitCode::SUCCESS;
    };
    let backend = common::backend();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{PROMPT_TOKENS} prompt and {DECODE_TOKENS} decode tokens, {threads} threads, {TURNS} turns"
    );
    println!(
        "{:>6} {:>22} {:>22} {:>8} {:>8}",
        "turn", "llama-bench t/s", "this API t/s", "prompt", "decode"
    );

    let mut ratios = Vec::new();
    for turn in 0..=TURNS {
        // The side that goes first changes, so that a warm machine favours neither.
        let theirs_first = turn % 2 == 0;
        let mut theirs = theirs_first.then(|| measure_theirs(&llama_bench, &model_path, threads));
        let ours = measure_ours(&backend, &model_path, threads);
        let theirs =
            *theirs.get_or_insert_with(|| measure_theirs(&llama_bench, &model_path, threads));
        let ratio = Rates {
            prompt: ours.prompt / theirs.prompt,
            decode: ours.decode / theirs.decode,
        };
        println!(
            "{turn:>6} {:>11.1} {:>10.1} {:>11.1} {:>10.1} {:>8.4} {:>8.4}{}",
            theirs.prompt,
            theirs.decode,
            ours.prompt,
            ours.decode,
            ratio.prompt,
            ratio.decode,
            if turn == 0 { "  (warm-up)" } else { "" }
        );
        if turn > 0 {
            ratios.push(ratio);
        }
    }
    let prompt = median(ratios.iter().map(|ratio| ratio.prompt));
    let decode = median(ratios.iter().map(|ratio| ratio.decode));
    println!(
        "ratio to llama-bench (median of {TURNS}): prompt {prompt:.4}, decode {decode:.4}; at least {LEAST_RATIO} is asked"
    );
    if prompt < LEAST_RATIO || decode < LEAST_RATIO {
        println!("FAIL: slower than asked");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `ROLLING_KV_BINARIES/llama-bench`, or the one of the build that this bench is linked with.
fn llama_bench() -> Option<PathBuf> {
    let named = std::env::var_os("ROLLING_KV_BINARIES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| common::backend().lib_dir());
    Some(folder.join("llama-bench")).filter(|program| program.is_file())
}

fn measure_theirs(program: &Path, model: &Path, threads: usize) -> Rates {
    let output = Command::new(program)
        .arg("--model")
        .arg(model)
        .args([
            "--n-prompt",
            &PROMPT_TOKENS.to_string(),
            "--n-gen",
            &DECODE_TOKENS.to_string(),
        ])
        .args([
            "--threads",
            &threads.to_string(),
            "--repetitions",
            "1",
            "--output",
            "json",
        ])
        .output()
        .expect("llama-bench starts");
    assert!(
        output.status.success(),
        "llama-bench failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("llama-bench writes JSON");
    let rate = |field: &str| {
        let rows = rows.as_array().expect("llama-bench writes a list");
        let row = rows
            .iter()
            .find(|row| row[field].as_u64().is_some_and(|count| count > 0));
        row.and_then(|row| row["avg_ts"].as_f64())
            .expect("llama-bench writes a rate")
    };
    Rates {
        prompt: rate("n_prompt"),
        decode: rate("n_gen"),
    }
}

/// The same work as llama-bench's: a fresh context for each part, one warm-up run, then one run that counts.
fn measure_ours(backend: &Backend, path: &Path, threads: usize) -> Rates {
    let model = Model::load(backend, path, &ModelParams::default()).expect("the model loads");
    let tokens = some_tokens(PROMPT_TOKENS, 1);
    let prompt = {
        let mut context = context(&model, PROMPT_TOKENS, threads);
        run_prompt(&mut context, &tokens);
        PROMPT_TOKENS as f64 / run_prompt(&mut context, &tokens)
    };
    let decode = {
        let mut context = context(&model, DECODE_TOKENS, threads);
        run_decode(&mut context, 1);
        DECODE_TOKENS as f64 / run_decode(&mut context, DECODE_TOKENS)
    };
    Rates { prompt, decode }
}

fn context(model: &Model, n_ctx: usize, threads: usize) -> Context<'_> {
    let params = ContextParams::new(n_ctx as u32).threads(threads as u32);
    model.context(&params).expect("the context is made")
}

fn run_prompt(context: &mut Context<'_>, tokens: &[Token]) -> f64 {
    context.memory().clear().expect("the cache is cleared");
    let started = Instant::now();
    context.append(0, tokens).expect("the prompt fits");
    std::hint::black_box(context.last_logits().expect("there are logits"));
    started.elapsed().as_secs_f64()
}

fn run_decode(context: &mut Context<'_>, count: usize) -> f64 {
    context.memory().clear().expect("the cache is cleared");
    let tokens = some_tokens(count, 2);
    let started = Instant::now();
    for token in tokens {
        context.append(0, &[token]).expect("the token fits");
        std::hint::black_box(context.last_logits().expect("there are logits"));
    }
    started.elapsed().as_secs_f64()
}
