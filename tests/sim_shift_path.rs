//! Who turns K in host memory when nothing is asked: whoever is reckoned to be faster. There is one device a process, so each link
//! has one of its own.

mod common;

use std::process::Command;

use common::sim::{context, shape};
use common::{logits_after, some_tokens, tiny};
use rolling_kv::{ContextParams, ModelParams, RollingKv};

/// Bandwidth of the link, in a process that was started for it.
const LINK: &str = "ROLLING_KV_TEST_SIM_LINK";

#[test]
fn as_a_child_tokens_move() {
    let Ok(link) = std::env::var(LINK) else {
        return;
    };
    let backend = common::backend();
    backend
        .simulate(&format!("mem=64MiB,link={link},latency=0us,time=reckoned"))
        .expect("the device is added");
    let shape = shape(2);
    let params = ModelParams::default();
    let model = tiny::finish_with(tiny::describe(&shape), &backend, &params, shape.seed);
    let params = ContextParams::new(512).n_ubatch(64).threads(1);
    let mut spilled = context(&model, &params, RollingKv::window_cells(64));
    logits_after(&mut spilled, 0, &some_tokens(300, 1));
    spilled.memory().shift(0, 100.., 7).expect("tokens move");
    logits_after(&mut spilled, 0, &some_tokens(1, 2));
    let totals = spilled.residency().totals();
    println!("moved: {} {}", totals.moved_host, totals.moved_device);
}

/// Cells of tails that the host turned, and those that the device turned.
fn moved(link: &str) -> (u64, u64) {
    let output = Command::new(std::env::current_exe().expect("the test program has a path"))
        .args(["--exact", "as_a_child_tokens_move", "--nocapture"])
        .env(LINK, link)
        .output()
        .expect("the test program starts again");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text
        .lines()
        .find_map(|line| line.split_once("moved: "))
        .unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
        .1;
    let (host, device) = numbers.split_once(' ').expect("two numbers");
    let number = |text: &str| text.trim().parse().expect("a number");
    (number(host), number(device))
}

#[test]
fn a_slow_link_leaves_it_to_the_host_and_a_fast_one_to_the_device() {
    let (host, device) = moved("1MB/s");
    assert!(host > 0 && device == 0, "{host} {device}");
    let (host, device) = moved("9000GB/s");
    assert!(host == 0 && device > 0, "{host} {device}");
}
