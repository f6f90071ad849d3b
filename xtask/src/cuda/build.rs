//! `cargo xtask cuda build`: the patched CUDA module, timed, weighed and checked.

use std::time::Instant;

use rolling_kv_stage::cuda::{Archs, Module};
use rolling_kv_stage::{Built, Plan, Variant};

use super::check;
use super::setup::{self, Parts};
use crate::error::Result;
use crate::place::Place;
use crate::progress::Work;

/// Builds what is not up to date, and says what it took and what came out.
pub fn run(place: &Place, archs: Option<Archs>) -> Result<()> {
    let started = Instant::now();
    let module = module(place, archs)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("module    {}", module.file.display());
    println!(
        "size      {:.1} MB",
        check::bytes(&module.file)? as f64 / 1e6
    );
    println!("time      {seconds:.1} s");
    check::module(&module)?;
    println!("log       {}", module.log.display());
    Ok(())
}

/// Programs of the patched tree, in a folder that also holds the module for `archs`, or for the usual cards.
pub fn beside(place: &Place, programs: &[&str], archs: Option<Archs>) -> Result<Built> {
    let plan = plan(place, archs)?.with_cuda(true);
    let names = programs.join(", ");
    let work = Work::start(format!(
        "building {names} and the CUDA module for {}",
        plan.archs()?
    ));
    let built = plan
        .with_reporter(work.reporter())
        .stage()?
        .compile(programs)?;
    work.done("");
    Ok(built)
}

/// The module for `archs`, or for the usual cards.
pub fn module(place: &Place, archs: Option<Archs>) -> Result<Module> {
    let plan = plan(place, archs)?;
    let work = Work::start(format!("building the CUDA module for {}", plan.archs()?));
    let module = plan
        .with_reporter(work.reporter())
        .stage()?
        .compile_cuda()?;
    work.done("");
    Ok(module)
}

/// What to build, once the tools are there.
fn plan(place: &Place, archs: Option<Archs>) -> Result<Plan> {
    crate::setup::ensure(place)?;
    setup::ensure(place, Parts::All)?;
    let plan = Plan::for_repo(&place.root, &place.target, Variant::Patched)?;
    Ok(match archs {
        Some(archs) => plan.with_archs(archs),
        None => plan,
    })
}
