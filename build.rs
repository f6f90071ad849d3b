//! Stages, patches and builds the pinned llama.cpp, and makes Rust declarations of it. The steps are in `vendor/stage`.

use rolling_kv_stage::{Failure, Plan};
use std::path::Path;

fn main() -> Result<(), Failure> {
    let plan = Plan::from_env()?;
    let tree = plan.stage()?;
    let libs = tree.compile(&[])?;
    libs.bind(&Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs"))?;
    libs.print_cargo_metadata();
    Ok(())
}
