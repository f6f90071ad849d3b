//! The patches of this checkout, on upstream's real tree where it is there.

mod common;

use rolling_kv_stage::env::Env;
use rolling_kv_stage::series::Series;
use rolling_kv_stage::source::{self, Fetch};
use rolling_kv_stage::{Error, Repo, Reporter, Upstream, check, checkout, hash};

#[test]
fn own_series_is_sound() {
    let repo = Repo::new(common::own_root());
    let series = Series::read(&repo.patches()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!series.patches.is_empty());
}

#[test]
fn own_patches_fit_and_survive_open_and_refresh() {
    let repo = Repo::new(common::own_root());
    let upstream = Upstream::read(&repo).unwrap();
    let tree = match source::find_with(
        &repo,
        &upstream,
        Fetch::Never,
        &Env::from_process(),
        &Reporter::default(),
    ) {
        Err(error @ Error::SourceMissing { .. }) => {
            println!("SKIP: {error}");
            return;
        }
        other => other.unwrap(),
    };
    let scratch = tempfile::tempdir().unwrap();
    let checked = check::check(&repo, &upstream, &tree, scratch.path())
        .unwrap_or_else(|error| panic!("{error}"));
    println!("{checked:?}");
    let copy = Repo::new(scratch.path().join("copy"));
    common::copy(&repo.patches(), &copy.patches());
    common::copy(&repo.kernels(), &copy.kernels());
    let before = hash::tree_sha256(&copy.patches()).unwrap();
    let dir = scratch.path().join("open");
    let opened = checkout::open(&copy, &upstream, &tree, &dir).unwrap();
    assert_eq!(opened.applied.len(), checked.patches.len());
    checkout::refresh(&copy, &upstream, &dir).unwrap();
    assert_eq!(hash::tree_sha256(&copy.patches()).unwrap(), before);
}
