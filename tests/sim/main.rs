//! The simulated device: a window in its memory, a tail in host memory, and a ring between them. Everything must equal the
//! CPU's resident cache bit for bit.

#[path = "../common/mod.rs"]
mod common;

mod device; // what it says of itself, and its memory running out
mod hazards; // what could make a staged tile wrong
mod ring; // depths, schedules and counters

use rolling_kv::Backend;

/// The device that every test of this program shares.
fn backend() -> Backend {
    let backend = common::backend();
    backend
        .simulate("mem=48MiB,link=2GB/s,latency=5us,seed=7")
        .expect("the simulated device is added");
    backend
}
