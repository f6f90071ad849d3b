//! What each step of `cargo xtask test` and `cargo xtask gates` does.

use std::ffi::OsStr;
use std::time::Duration;

use rolling_kv_stage::Variant;

use crate::error::Result;
use crate::memcheck::Extent;
use crate::native::{self, PROGRAMS, UPSTREAM_TESTS};
use crate::place::Place;
use crate::report::{Counts, Outcome};
use crate::upstream::{self, Depth, Whose};
use crate::{
    binaries, cargo, clone, cuda, dependent, equality, equiv, fresh, gpu, kernels, memcheck, model,
    moves, options, patches, screenshot, setup, slots, smoke,
};

/// A step that is one check.
fn done<T>(result: Result<T>) -> Result<Outcome> {
    result.map(|_| Outcome::passed())
}

/// A step that counts its own checks.
fn counted(result: Result<Counts>) -> Result<Outcome> {
    result.map(Outcome::Ran)
}

/// Every Rust file is formatted.
pub fn format(place: &Place) -> Result<Outcome> {
    done(cargo::shown(place, &["fmt", "--all", "--", "--check"]))
}

/// The build tools are there, or are installed.
pub fn tools(place: &Place) -> Result<Outcome> {
    done(setup::ensure(place))
}

/// Upstream's tree is there, or is fetched.
pub fn upstream_tree(place: &Place) -> Result<Outcome> {
    done(native::source(place))
}

/// The patches hold what `cargo xtask patches check` asks.
pub fn patches_check(place: &Place) -> Result<Outcome> {
    let patches = patches::check(place)?.patches.len();
    Ok(Outcome::Ran(Counts::new(patches as u64, 0, 0)))
}

/// The tests that need no llama.cpp.
pub fn tooling_tests(place: &Place) -> Result<Outcome> {
    counted(cargo::test(
        place,
        &["--package", "rolling-kv-stage", "--package", "xtask"],
        &[],
    ))
}

/// Everything of the patched tree that a later step runs, built in one go.
pub fn native_build(place: &Place) -> Result<Outcome> {
    setup::ensure(place)?;
    let targets: Vec<&str> = PROGRAMS.iter().chain(UPSTREAM_TESTS).copied().collect();
    done(native::build(place, Variant::Patched, &targets))
}

/// Our C++ compiles without a warning.
pub fn kernel_warnings(place: &Place) -> Result<Outcome> {
    counted(kernels::check(place))
}

/// Our CUDA files compile without a warning and without a spilled register.
pub fn cuda_kernels(place: &Place) -> Result<Outcome> {
    cuda::kernels::step(place)
}

/// Clippy has nothing to say.
pub fn clippy(place: &Place) -> Result<Outcome> {
    done(cargo::shown(
        place,
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ))
}

/// The unpatched llama-completion to compare with.
pub fn stock_build(place: &Place) -> Result<Outcome> {
    setup::ensure(place)?;
    done(native::stock_completion(place))
}

/// The small real model is there, or is fetched.
pub fn model_fetch(place: &Place) -> Result<Outcome> {
    done(model::fetch(place))
}

/// The tests that need llama.cpp. What they would skip for want of the model or of the unpatched program is required.
pub fn tests(place: &Place) -> Result<Outcome> {
    let stock = native::stock_completion(place)?;
    let env: [(&str, &OsStr); 3] = [
        ("ROLLING_KV_REQUIRE_MODEL", "1".as_ref()),
        ("ROLLING_KV_REQUIRE_STOCK", "1".as_ref()),
        ("ROLLING_KV_STOCK_COMPLETION", stock.as_os_str()),
    ];
    counted(cargo::test(
        place,
        &[
            "--workspace",
            "--exclude",
            "rolling-kv-stage",
            "--exclude",
            "xtask",
        ],
        &env,
    ))
}

/// The logits of a long text on the real model, in every window, mix and type, and on a device that is almost too small.
pub fn long_texts(place: &Place) -> Result<Outcome> {
    let env: [(&str, &OsStr); 2] = [
        ("ROLLING_KV_REQUIRE_MODEL", "1".as_ref()),
        ("ROLLING_KV_TEST_LONG", "1".as_ref()),
    ];
    let test = [
        "--package",
        "rolling-kv",
        "--test",
        "residency_real",
        "--test",
        "sim_memory",
    ];
    counted(cargo::test(place, &test, &env))
}

/// The documentation builds without a warning.
pub fn documentation(place: &Place) -> Result<Outcome> {
    let run = cargo::command(place)
        .args(["doc", "--workspace", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    done(run.limit(Duration::from_secs(20 * 60)).shown()?.success())
}

/// Benches and examples compile.
pub fn benches(place: &Place) -> Result<Outcome> {
    done(cargo::shown(
        place,
        &["test", "--workspace", "--benches", "--examples", "--no-run"],
    ))
}

/// Crates that depend on ours run.
pub fn dependents(place: &Place) -> Result<Outcome> {
    counted(dependent::run(place))
}

/// The folder of programs can be moved.
pub fn collect_binaries(place: &Place) -> Result<Outcome> {
    done(binaries::run(
        place,
        &binaries::default_out(place, None),
        None,
    ))
}

/// The patched server answers.
pub fn server_smoke(place: &Place) -> Result<Outcome> {
    counted(smoke::run(place))
}

/// A server on the simulated device answers as one whose cache is resident.
pub fn server_on_device(place: &Place) -> Result<Outcome> {
    counted(slots::run(place))
}

/// Context shift, cache reuse, slots, drafts and self-extend on a spilled cache answer as on a resident one.
pub fn moved_positions(place: &Place) -> Result<Outcome> {
    counted(moves::run(place))
}

/// A spilled cache gives the logits of a resident one over thousands of tokens.
pub fn logit_equivalence(place: &Place) -> Result<Outcome> {
    counted(equiv::logits(place))
}

/// The gate for that notices each fault.
pub fn logit_equivalence_faults(place: &Place) -> Result<Outcome> {
    counted(equiv::logits_faults(place))
}

/// Moving keys to other positions costs no more precision than roundings do.
pub fn moved_keys(place: &Place) -> Result<Outcome> {
    counted(equiv::keys(place))
}

/// Needles are found the same wherever they lie.
pub fn needles(place: &Place) -> Result<Outcome> {
    counted(equiv::needles(place))
}

/// The same at every length and depth.
pub fn needles_all(place: &Place) -> Result<Outcome> {
    counted(equiv::all_needles(place))
}

/// What a tail costs is the longer of computing and copying.
pub fn tails(place: &Place) -> Result<Outcome> {
    counted(equiv::tails(place))
}

/// What a step takes by who attends to the tail.
pub fn engines(place: &Place) -> Result<Outcome> {
    counted(equiv::engines(place))
}

/// The same over a longer text and with more tails.
pub fn engines_all(place: &Place) -> Result<Outcome> {
    counted(equiv::all_engines(place))
}

/// Logits on a quantised cache, and on every way to keep K and V.
pub fn kinds_of_cache(place: &Place) -> Result<Outcome> {
    counted(equiv::kinds(place))
}

/// A budget of device memory, by placement and by layers that see less.
pub fn budget(place: &Place) -> Result<Outcome> {
    counted(equiv::budget(place))
}

/// What plans predict is what steps take.
pub fn plans(place: &Place) -> Result<Outcome> {
    counted(equiv::plans(place))
}

/// The script for a machine with a card, on the simulated device.
pub fn gpu_script(place: &Place) -> Result<Outcome> {
    counted(gpu::run(place))
}

/// The CUDA module's host side, where the module was built: that takes twenty minutes for each card.
pub fn cuda_rehearsal(place: &Place) -> Result<Outcome> {
    cuda::rehearse::step(place)
}

/// A gate's page is right in a browser, and a spoiled one is noticed.
pub fn page_in_browser(place: &Place) -> Result<Outcome> {
    screenshot::run(place)
}

/// The options of llama.cpp's programs do what they say.
pub fn program_options(place: &Place) -> Result<Outcome> {
    counted(options::run(place))
}

/// Placement changes no digit of a perplexity.
pub fn perplexity(place: &Place) -> Result<Outcome> {
    counted(options::perplexity(place))
}

/// Nothing is built twice.
pub fn freshness(place: &Place) -> Result<Outcome> {
    counted(fresh::run(place))
}

/// Our program's text is the unpatched program's.
pub fn run_equality(place: &Place) -> Result<Outcome> {
    counted(equality::run(place))
}

/// The tests of our kernels, which are C++ as they are.
pub fn kernel_tests(place: &Place) -> Result<Outcome> {
    counted(upstream::run(place, Whose::Ours, Depth::Short))
}

/// Upstream's own tests, as many as take minutes.
pub fn upstream_tests(place: &Place) -> Result<Outcome> {
    counted(upstream::run(place, Whose::Theirs, Depth::Short))
}

/// Upstream's own tests, all of them.
pub fn upstream_tests_all(place: &Place) -> Result<Outcome> {
    counted(upstream::run(place, Whose::Everyones, Depth::Full))
}

/// The quicker of the API tests on tiny models make no memory error.
pub fn valgrind(place: &Place) -> Result<Outcome> {
    memcheck::run(place, Extent::Short)
}

/// All API tests make no memory error.
pub fn valgrind_all(place: &Place) -> Result<Outcome> {
    memcheck::run(place, Extent::All)
}

/// A clone elsewhere builds offline.
pub fn fresh_clone(place: &Place) -> Result<Outcome> {
    clone::run(place)
}
