//! The native tree: where its source is found, and building it.

use std::path::PathBuf;

use rolling_kv_stage::env::Env;
use rolling_kv_stage::source::{self, Fetch, SourceTree};
use rolling_kv_stage::{Built, Plan, Repo, Upstream, Variant};

use crate::error::Result;
use crate::place::Place;
use crate::progress::Work;

/// The programs that `binaries` collects.
pub const PROGRAMS: &[&str] = &[
    "llama-server",
    "llama-cli",
    "llama-completion",
    "llama-bench",
    "llama-perplexity",
];

/// The programs that comparisons run from the unpatched tree.
pub const STOCK_PROGRAMS: &[&str] = &["llama-completion", "llama-bench", "llama-perplexity"];

/// One test, for each width of vectors.
pub const ASKS: [&str; 4] = [
    "test-rkv-asks-base",
    "test-rkv-asks-avx2",
    "test-rkv-asks-avx512",
    "test-rkv-asks-vnni",
];

/// Upstream's own tests that this repository runs.
pub const UPSTREAM_TESTS: &[&str] = &[
    "test-llama-archs",
    "test-backend-ops",
    "test-alloc",
    "test-save-load-state",
    "test-state-restore-fragmented",
    "test-rkv-ahead",
    "test-rkv-archs",
    ASKS[0],
    ASKS[1],
    ASKS[2],
    ASKS[3],
    "test-rkv-attn",
    "test-rkv-cuda",
    "test-rkv-device",
    "test-rkv-numa",
    "test-rkv-pieces",
    "test-rkv-rope",
    "test-rkv-sim",
    "test-rkv-stream-ring",
    "bench-rkv-attn",
];

/// Finds upstream's tree, fetching it into the user's cache if it is nowhere.
pub fn source(place: &Place) -> Result<SourceTree> {
    let repo = Repo::new(&place.root);
    let upstream = Upstream::read(&repo)?;
    let work = Work::start("looking for upstream's tree");
    let found = source::find_with(
        &repo,
        &upstream,
        Fetch::Allowed,
        &Env::from_process(),
        &work.reporter(),
    )?;
    work.done(&format!("{:?}, {}", found.origin, found.path.display()));
    Ok(found)
}

/// Stages and builds `targets`; what is up to date is left alone.
pub fn build(place: &Place, variant: Variant, targets: &[&str]) -> Result<Built> {
    let plan = Plan::for_repo(&place.root, &place.target, variant)?;
    let tree = match variant {
        Variant::Patched => "patched",
        Variant::Stock => "stock",
    };
    let what = if targets.is_empty() {
        "libraries".to_owned()
    } else {
        targets.join(", ")
    };
    let work = Work::start(format!("building {tree} {what}"));
    let staged = plan.with_reporter(work.reporter()).stage()?;
    let built = staged.compile(targets)?;
    work.done("");
    Ok(built)
}

/// The root of the patched tree that was staged last.
pub fn staged_root(place: &Place) -> Result<PathBuf> {
    Ok(
        Plan::for_repo(&place.root, &place.target, Variant::Patched)?
            .stage()?
            .release(),
    )
}

/// A text that changes with the patched tree: with upstream, the patches or the kernels.
pub fn identity(place: &Place) -> Result<String> {
    let staged = Plan::for_repo(&place.root, &place.target, Variant::Patched)?.stage()?;
    Ok(format!("{} {}", staged.stamp().id(), staged.text()))
}

/// The log of the last build of the patched tree.
pub fn log(place: &Place) -> Result<PathBuf> {
    Ok(
        Plan::for_repo(&place.root, &place.target, Variant::Patched)?
            .dir()
            .join("build.log"),
    )
}

/// The unpatched llama-completion, built if it is not there.
pub fn stock_completion(place: &Place) -> Result<PathBuf> {
    Ok(build(place, Variant::Stock, &["llama-completion"])?
        .bin_dir()
        .join("llama-completion"))
}
