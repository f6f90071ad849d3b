//! Rust declarations of the fixture. Alone in its program, since bindgen is told by way of the environment.

mod common;

use common::{Fixture, assert_says, build, has_tools};
use rolling_kv_stage::Variant;

#[test]
fn declarations_are_made_with_layout_tests() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let built = build(&fixture.plan(Variant::Patched));
    let out = fixture.scratch().join("out/bindings.rs");
    built.bind(&out).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    let wanted = [
        "pub fn llama_ring(",
        "pub fn rkv_abi_v1() -> u32",
        "pub const LLAMA_MOOD_LOUD: llama_mood = 3",
        "pub fn ggml_add_one",
        "offset_of!(llama_bell, rings) - 8usize",
    ];
    assert_says(&text, &wanted);
    assert!(
        !text.contains("llama_knock"),
        "a deprecated function was declared"
    );
    std::fs::remove_file(built.bin_dir().join("../../src/rkv/include/rkv-bindgen.h")).unwrap();
    assert_says(
        &built.bind(&out).unwrap_err().to_string(),
        &["rkv-bindgen.h", "the file is missing"],
    );
}
