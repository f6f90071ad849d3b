//! Tests that measure or limit the process run alone in one: the test program is started again for that one test.

use std::os::unix::process::CommandExt;
use std::process::Command;

const MARK: &str = "ROLLING_KV_TEST_CHILD";

/// Whether this process was started by [`run`].
pub fn is_one() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the test program for the test of this name alone, and answers what it printed. Fails if it failed.
pub fn run(test: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("the test program has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env("RUST_BACKTRACE", "0")
        .arg0("child")
        .output()
        .expect("the test program starts again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A checker such as valgrind needs memory of its own, so nothing can be measured or limited there.
pub fn skipped_under_a_checker(test: &str) -> bool {
    let skipped = std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some();
    if skipped {
        println!("SKIP {test}: a checker takes memory of its own");
    }
    skipped
}

/// Address space and resident memory of this process, in bytes.
pub fn taken() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let mut pages = text.split(' ').map(|field| field.parse::<u64>());
    let mut next = || pages.next().expect("a field").expect("a number of pages") * 4096;
    (next(), next())
}
