//! Allocations that fail: in a child process with little address space, as a failure may not be undone in this one.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rolling_kv::{ContextParams, ModelParams};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, some_tokens};

/// Set in the child: bytes of address space to leave.
const LEFT: &str = "ROLLING_KV_TEST_SPACE_LEFT";

fn used_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    pages
        .split(' ')
        .next()
        .and_then(|pages| pages.parse::<u64>().ok())
        .expect("a number of pages")
        * 4096
}

/// Only does something as the child of the test below.
#[test]
fn as_a_child_contexts_are_tried_in_little_space() {
    let Some(left) = std::env::var(LEFT)
        .ok()
        .and_then(|left| left.parse::<u64>().ok())
    else {
        return;
    };
    let description = tiny::describe(&Shape {
        n_layer: 8,
        ..Shape::default()
    });
    let model = description
        .build(&backend(), &ModelParams::default(), |_, values| {
            values.fill(0.01)
        })
        .unwrap();
    let limit = libc::rlimit {
        rlim_cur: used_bytes() + left,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid rlimit; it lowers what this process may map from now on.
    let status = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(status, 0);
    let mut made = 0;
    for n_ctx in [16384, 2048, 256] {
        if let Ok(mut context) = model.context(&ContextParams::new(n_ctx).threads(2).n_ubatch(128))
        {
            made += 1;
            let _ = context.append(0, &some_tokens(100, 1));
        }
    }
    println!("made {made}");
}

#[test]
fn allocations_that_fail_are_errors() {
    if std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some() {
        println!("SKIP allocations_that_fail_are_errors: a checker needs address space of its own");
        return;
    }
    let child = "limits::as_a_child_contexts_are_tried_in_little_space";
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..12 {
        let left = (1 << 20) + step * (6 << 20);
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child, "--nocapture", "--test-threads=1"])
            .env(LEFT, left.to_string())
            .env("RUST_BACKTRACE", "0")
            .arg0("child")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let made = text
            .split_once("made ")
            .and_then(|(_, rest)| rest.lines().next())
            .map(str::to_owned);
        assert!(
            output.status.success() && made.is_some(),
            "{left} bytes left: {}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        seen.extend(made);
    }
    assert!(
        seen.len() > 2,
        "some limits let through more than others: {seen:?}"
    );
}
