//! What moving tokens to other positions costs on a spilled window: milliseconds per 1000 cells of the tail, turned by the host and by
//! the device, beside computing those tokens again. On the small real model and a simulated device behind a link of 6.4 GB/s.
//!
//! `cargo bench --bench shift` runs it. The device's arithmetic is this machine's, so its path is measured from below: the link is
//! real time, the turning is not a card's.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;
use std::time::Instant;

use common::some_tokens;
use rolling_kv::{
    Backend, Context, ContextParams, KvType, Model, ModelParams, Order, RollingKv, ShiftPath,
};

const DEVICE: &str = "mem=1GiB,link=6.4GB/s,latency=10us";
const TOKENS: usize = 3072;
const WINDOW: u32 = 1024;
const TURNS: usize = 9;

/// Computing again must take at least this many times as long.
const LEAST_RATIO: f64 = 5.0;

fn main() -> ExitCode {
    // `cargo test --benches` asks every bench for its tests, and this one has none.
    if std::env::args().any(|arg| arg == "--list" || arg == "--test") {
        return ExitCode::SUCCESS;
    }
    let Some(path) = common::real::path_or_skip("shift") else {
        return ExitCode::SUCCESS;
    };
    let backend = common::backend();
    backend
        .simulate(DEVICE)
        .expect("the simulated device is added");
    let cells = TOKENS - WINDOW as usize;
    println!("{TOKENS} tokens, {cells} of them in the tail; device sim:{DEVICE}; best of {TURNS}");
    println!(
        "{:>6} {:>8} {:>16} {:>22} {:>14}",
        "K", "path", "ms / 1000 cells", "computing again, ms", "times faster"
    );
    let mut least = f64::INFINITY;
    for kv in [KvType::F16, KvType::Q8_0] {
        let again = again_ms(&backend, &path, kv) / (cells as f64 / 1000.0);
        for (name, path_of) in [("host", ShiftPath::Host), ("device", ShiftPath::Device)] {
            let model = Model::load(&backend, &path, &ModelParams::default()).expect("it loads");
            let shift = moved_ms(&model, kv, path_of) / (cells as f64 / 1000.0);
            println!(
                "{:>6} {name:>8} {shift:>16.2} {again:>22.1} {:>14.1}",
                kv.to_string(),
                again / shift
            );
            least = least.min(again / shift);
        }
    }
    if least >= LEAST_RATIO {
        ExitCode::SUCCESS
    } else {
        println!("FAILED: moving is only {least:.1} times faster than computing again");
        ExitCode::FAILURE
    }
}

fn context(model: &Model, kv: KvType, path: ShiftPath) -> Context<'_> {
    let spill = RollingKv::window_cells(WINDOW)
        .order(Order::Tiled)
        .shift_path(path);
    let params = ContextParams::new(TOKENS as u32 + 64)
        .cache_types(kv, kv)
        .rolling_kv(spill);
    model.context(&params).expect("the context is made")
}

/// Milliseconds in which this machine computes the tail's tokens, behind those of the window.
fn again_ms(backend: &Backend, path: &std::path::Path, kv: KvType) -> f64 {
    let params = ModelParams::default().devices(&[]);
    let model = Model::load(backend, path, &params).expect("it loads");
    let mut context = context(&model, kv, ShiftPath::Host);
    let tokens = some_tokens(TOKENS, 1);
    let (window, tail) = tokens.split_at(WINDOW as usize);
    context.append(0, window).expect("it fits");
    let started = Instant::now();
    context.append(0, tail).expect("it fits");
    context.last_logits().expect("an output");
    started.elapsed().as_secs_f64() * 1e3
}

/// Milliseconds in which the tail's cells move, and their number is checked.
fn moved_ms(model: &Model, kv: KvType, path: ShiftPath) -> f64 {
    let mut context = context(model, kv, path);
    context.append(0, &some_tokens(TOKENS, 1)).expect("it fits");
    let mut best = f64::INFINITY;
    for turn in 0..TURNS {
        let delta = if turn % 2 == 0 { 1 } else { -1 };
        let from = WINDOW as i32 + i32::from(turn % 2 == 1);
        let mut memory = context.memory();
        memory.shift(0, from.., delta).expect("it moves");
        let started = Instant::now();
        memory.settle().expect("it is turned");
        best = best.min(started.elapsed().as_secs_f64() * 1e3);
    }
    let totals = context.residency().totals();
    let cells = (TOKENS - WINDOW as usize) * TURNS * model.n_layer() as usize;
    let turned = match path {
        ShiftPath::Device => totals.moved_device,
        _ => totals.moved_host,
    };
    assert_eq!(turned, cells as u64, "{totals:?}");
    best
}
