//! `cargo xtask patches`: check them, edit them as commits, write them back.

use std::path::PathBuf;

use rolling_kv_stage::check::{self, Checked};
use rolling_kv_stage::checkout::{self, Opened, PRISTINE};
use rolling_kv_stage::{Repo, Upstream};

use crate::error::{Error, Result};
use crate::native;
use crate::place::Place;
use crate::progress::Work;

/// Applies every patch to a pristine tree and checks series, headers and hooks.
pub fn check(place: &Place) -> Result<Checked> {
    let (repo, upstream) = read(place)?;
    let source = native::source(place)?;
    std::fs::create_dir_all(place.work()).map_err(Error::file("make", &place.work()))?;
    let work = Work::start("checking patches");
    let checked = check::check(&repo, &upstream, &source, &place.work())?;
    work.done(&format!("{} apply exactly", checked.patches.len()));
    for (name, hooks, added) in &checked.patches {
        println!("ok  {name}  +{added}  {}", hooks.join(" "));
    }
    Ok(checked)
}

/// Makes the work tree to edit the patches in.
pub fn open(place: &Place, dir: Option<PathBuf>) -> Result<()> {
    let (repo, upstream) = read(place)?;
    let source = native::source(place)?;
    let dir = dir.unwrap_or_else(|| checkout::default_dir(&place.target));
    let work = Work::start(format!("opening the patches in {}", dir.display()));
    let Opened {
        dir,
        applied,
        moved,
        failed,
    } = checkout::open(&repo, &upstream, &source, &dir)?;
    work.done(&format!(
        "{} applied, {} moved, {} failed",
        applied.len(),
        moved.len(),
        failed.len()
    ));
    for name in &moved {
        println!("moved   {name}: its context was found elsewhere; look at it with `git show`");
    }
    for (name, error) in &failed {
        println!("failed  {name}: {error}");
    }
    println!(
        "One commit per patch on top of `{PRISTINE}` in:\n  {}",
        dir.display()
    );
    println!(
        "Edit with git (`git rebase -i {PRISTINE}`), then write back with `cargo xtask patches refresh`."
    );
    Ok(())
}

/// Writes the commits of the work tree back into `patches/`.
pub fn refresh(place: &Place, dir: Option<PathBuf>) -> Result<()> {
    let (repo, upstream) = read(place)?;
    let dir = dir.unwrap_or_else(|| checkout::default_dir(&place.target));
    let done = checkout::refresh(&repo, &upstream, &dir)?;
    for (verb, names) in [
        ("kept", &done.kept),
        ("written", &done.written),
        ("removed", &done.removed),
    ] {
        names.iter().for_each(|name| println!("{verb:<8}{name}"));
    }
    if done.series_written {
        println!("written patches/series");
    }
    Ok(())
}

fn read(place: &Place) -> Result<(Repo, Upstream)> {
    let repo = Repo::new(&place.root);
    let upstream = Upstream::read(&repo)?;
    Ok((repo, upstream))
}
