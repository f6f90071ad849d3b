//! Misuse that must not compile: each file under `compile_fail/` is one, with the compiler's answer beside it.

use std::process::Command;

/// The compiler whose answers lie beside the files. Others word them differently.
const WRITTEN_WITH: &str = "rustc 1.95.";

#[test]
fn misuse_does_not_compile() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("the compiler says its version")
        .stdout;
    let version = String::from_utf8_lossy(&version);
    if !version.starts_with(WRITTEN_WITH) {
        println!(
            "SKIP misuse_does_not_compile: the answers were written with {WRITTEN_WITH}x, and this is {version}"
        );
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
