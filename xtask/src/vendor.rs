//! `cargo xtask vendor`: upstream's tree, fetched and verified.

use rolling_kv_stage::env::Env;
use rolling_kv_stage::{Repo, Upstream, fetch, source};

use crate::error::Result;
use crate::place::Place;
use crate::progress::Work;

/// Puts the pinned tree into `vendor/llama.cpp`.
pub fn run(place: &Place) -> Result<()> {
    let repo = Repo::new(&place.root);
    let upstream = Upstream::read(&repo)?;
    let work = Work::start(format!(
        "vendoring {} ({:.1} MB)",
        upstream.title(),
        mega(upstream.bytes)
    ));
    let tree = source::vendor(&repo, &upstream, &Env::from_process(), &work.reporter())?;
    work.done(&tree.path.display().to_string());
    Ok(())
}

/// Prints the hash of the tree in the pinned package, for `vendor/UPSTREAM.toml`.
pub fn print_hash(place: &Place) -> Result<()> {
    let upstream = Upstream::read(&Repo::new(&place.root))?;
    let env = Env::from_process();
    let work = Work::start(format!("hashing the tree of {}", upstream.title()));
    let hash = fetch::tree_sha256(&upstream, &fetch::cache_dir(&env)?, &env, &work.reporter())?;
    work.done("");
    println!("{hash}");
    Ok(())
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
