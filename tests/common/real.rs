//! The small real model, which `cargo xtask test` fetches.

use std::path::PathBuf;

use rolling_kv::{Backend, Model, ModelParams};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Where the model should be.
pub fn path() -> PathBuf {
    if let Some(path) = std::env::var_os("ROLLING_KV_TEST_MODEL") {
        return path.into();
    }
    let cache = std::env::var_os("ROLLING_KV_CACHE_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| {
        std::env::var_os("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("rolling-kv"))
    });
    let cache = cache.or_else(|| {
        std::env::var_os("HOME").map(|dir| PathBuf::from(dir).join(".cache/rolling-kv"))
    });
    cache.unwrap_or_default().join("models").join(FILE)
}

/// The path if the model is there. Says why not, and fails if it was promised to be there.
pub fn path_or_skip(test: &str) -> Option<PathBuf> {
    let path = path();
    if path.is_file() {
        return Some(path);
    }
    let missing = format!(
        "there is no {}: run `rolling-kv fetch smollm2`, or set ROLLING_KV_TEST_MODEL",
        path.display()
    );
    assert!(
        std::env::var_os("ROLLING_KV_REQUIRE_MODEL").is_none(),
        "{test}: {missing}"
    );
    println!("SKIP {test}: {missing}");
    None
}

pub fn model_or_skip(test: &str, backend: &Backend) -> Option<Model> {
    let path = path_or_skip(test)?;
    Some(Model::load(backend, path, &ModelParams::default()).expect("the real model loads"))
}
