//! Finding and fetching upstream's tree. pip is played by a script, so that no test needs the network.

mod common;

use common::{Fixture, assert_says, names};
use flate2::{Compression, write::GzEncoder};
use rolling_kv_stage::env::Env;
use rolling_kv_stage::source::{self, Fetch, Origin};
use rolling_kv_stage::{Event, Reporter, fetch, hash};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the archive is called, and where pip finds it.
const FILE: &str = "fixture-1.0.tar.gz";

struct Shop {
    fixture: Fixture,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Shop {
    /// A fixture whose tree is only to be had from an archive, with a `python3` that serves it.
    fn new(pip: &str) -> Self {
        let fixture = Fixture::new();
        let shelf = fixture.scratch().join("shelf");
        std::fs::create_dir_all(&shelf).unwrap();
        archive(&fixture.repo.vendored(), &shelf.join(FILE), &[]);
        let this = Self {
            fixture,
            events: Arc::default(),
        };
        this.pin();
        this.serve(pip);
        std::fs::rename(
            this.fixture.repo.vendored(),
            this.fixture.scratch().join("was vendored"),
        )
        .unwrap();
        this
    }

    fn shelf(&self) -> PathBuf {
        self.fixture.scratch().join("shelf")
    }

    fn cache(&self) -> PathBuf {
        self.fixture.scratch().join("the cache")
    }

    fn pin(&self) {
        let file = self.shelf().join(FILE);
        self.fixture.pin(
            &hash::file_sha256(&file).unwrap(),
            file.metadata().unwrap().len(),
        );
    }

    /// Makes `python3` run these shell lines; `$shelf` is the folder of the archive, `$dest` where pip is to put it.
    fn serve(&self, lines: &str) {
        let shelf = self.shelf();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" != -c ] || {{ echo \"$0\"; exit; }}\nshelf='{}'\nprintf '%s\\n' \"$*\" >> \"$shelf/calls\"\n\
             while [ \"$1\" != --dest ]; do shift; done\ndest=$2\n{lines}\n",
            shelf.display()
        );
        let python = shelf.join("python3");
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(self.shelf().join("calls")).map_or(0, |text| text.lines().count())
    }

    fn env(&self) -> Env {
        let path = format!("{}:/usr/bin:/bin", self.shelf().display());
        self.fixture.env(&[("PATH", &path)])
    }

    fn find(&self, fetch: Fetch) -> Result<source::SourceTree, String> {
        let events = self.events.clone();
        let reporter = Reporter::new(move |event| events.lock().unwrap().push(event.clone()));
        let found = source::find_with(
            &self.fixture.repo,
            &self.fixture.upstream(),
            fetch,
            &self.env(),
            &reporter,
        );
        found.map_err(|error| error.to_string())
    }
}

const SERVES: &str = "cp \"$shelf/fixture-1.0.tar.gz\" \"$dest/\"";

/// Packs `tree` as `fixture-1.0/vendor/llama.cpp`, beside files that are not wanted, and entries of `(name, link target)`.
fn archive(tree: &Path, file: &Path, links: &[(&str, &str)]) {
    let mut tar = tar::Builder::new(GzEncoder::new(
        std::fs::File::create(file).unwrap(),
        Compression::fast(),
    ));
    tar.append_dir_all("fixture-1.0/vendor/llama.cpp", tree)
        .unwrap();
    for name in [
        "fixture-1.0/PKG-INFO",
        "fixture-1.0/vendor/other/x.c",
        "fixture-1.0/vendor/llama.cpp/docs/a/guide.md",
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &b"text"[..]).unwrap();
    }
    for (name, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, name, target).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
}

#[test]
fn vendored_tree_is_found_first() {
    let fixture = Fixture::new();
    let found = source::find_with(
        &fixture.repo,
        &fixture.upstream(),
        Fetch::Never,
        &fixture.env(&[]),
        &Reporter::default(),
    );
    assert_eq!(found.unwrap().origin, Origin::Vendored);
}

#[test]
fn variable_goes_before_everything() {
    let fixture = Fixture::new();
    let tree = fixture.repo.vendored();
    let env = fixture.env(&[("ROLLING_KV_LLAMA_DIR", tree.to_str().unwrap())]);
    let found = source::find_with(
        &fixture.repo,
        &fixture.upstream(),
        Fetch::Never,
        &env,
        &Reporter::default(),
    )
    .unwrap();
    assert_eq!((found.path, found.origin), (tree, Origin::Override));
}

#[test]
fn variable_that_names_no_tree_is_refused() {
    let fixture = Fixture::new();
    let env = fixture.env(&[("ROLLING_KV_LLAMA_DIR", "/nowhere")]);
    let found = source::find_with(
        &fixture.repo,
        &fixture.upstream(),
        Fetch::Allowed,
        &env,
        &Reporter::default(),
    );
    assert_says(
        &found.unwrap_err().to_string(),
        &[
            "ROLLING_KV_LLAMA_DIR names /nowhere",
            "not a llama.cpp tree",
        ],
    );
}

#[test]
fn offline_says_what_to_do() {
    let shop = Shop::new(SERVES);
    let message = shop.find(Fetch::Never).unwrap_err();
    assert_says(
        &message,
        &[
            "no llama.cpp tree found",
            "vendor/llama.cpp",
            "the cache",
            "cargo xtask vendor",
            "ROLLING_KV_LLAMA_DIR",
        ],
    );
    assert_eq!(shop.calls(), 0);
}

#[test]
fn tree_is_fetched_once_and_then_found() {
    let shop = Shop::new(SERVES);
    let found = shop.find(Fetch::Allowed).unwrap();
    assert_eq!(found.origin, Origin::Cache);
    assert!(found.path.join("src/llama.cpp").is_file());
    assert!(!found.path.join("docs").exists());
    assert_eq!(
        hash::tree_sha256(&found.path).unwrap(),
        shop.fixture.upstream().tree_sha256
    );
    assert_eq!(shop.find(Fetch::Never).unwrap(), found);
    assert_eq!(shop.calls(), 1);
    assert_eq!(
        names(&shop.cache()),
        [".lock", FILE, &shop.fixture.upstream().cache_key()]
    );
}

#[test]
fn pip_is_told_to_require_the_hash() {
    let shop = Shop::new(&format!(
        "cp \"$dest/requirements.txt\" \"$shelf/\"\n{SERVES}"
    ));
    shop.find(Fetch::Allowed).unwrap();
    let call = std::fs::read_to_string(shop.shelf().join("calls")).unwrap();
    assert_says(
        &call,
        &[
            "-m pip download --no-deps",
            "--no-binary fixture --require-hashes",
        ],
    );
    let requirements = std::fs::read_to_string(shop.shelf().join("requirements.txt")).unwrap();
    assert_eq!(
        requirements,
        format!(
            "fixture==1.0 --hash=sha256:{}\n",
            shop.fixture.upstream().sha256
        )
    );
}

#[test]
fn progress_is_reported() {
    let half =
        "head -c 500 \"$shelf/fixture-1.0.tar.gz\" > \"$TMPDIR/fixture-1.0.tar.gz\"\nsleep 1\n";
    let shop = Shop::new(&format!("{half}{SERVES}"));
    shop.find(Fetch::Allowed).unwrap();
    let events = shop.events.lock().unwrap();
    let bytes_total = shop.fixture.upstream().bytes;
    let package = "fixture 1.0".to_owned();
    assert_eq!(
        events[0],
        Event::FetchStarted {
            package,
            bytes: bytes_total
        }
    );
    assert!(
        events.contains(&Event::Fetching {
            bytes_done: 500,
            bytes_total
        }),
        "{events:?}"
    );
    assert!(
        matches!(events.last(), Some(Event::Extracting { files: 9 })),
        "{events:?}"
    );
}

#[test]
fn pip_is_stopped_once_the_archive_is_there() {
    let shop = Shop::new("cp \"$shelf/fixture-1.0.tar.gz\" \"$TMPDIR/\"\nexec sleep 600");
    let start = std::time::Instant::now();
    shop.find(Fetch::Allowed).unwrap();
    assert!(start.elapsed().as_secs() < 300);
}

#[test]
fn finished_archive_is_not_fetched_again() {
    let shop = Shop::new("exit 9");
    std::fs::create_dir_all(shop.cache()).unwrap();
    std::fs::copy(shop.shelf().join(FILE), shop.cache().join(FILE)).unwrap();
    shop.find(Fetch::Allowed).unwrap();
    assert_eq!(shop.calls(), 0);
}

#[test]
fn broken_archive_in_the_cache_is_fetched_again() {
    let shop = Shop::new(SERVES);
    std::fs::create_dir_all(shop.cache()).unwrap();
    std::fs::write(shop.cache().join(FILE), "half").unwrap();
    shop.find(Fetch::Allowed).unwrap();
    assert_eq!(shop.calls(), 1);
}

#[test]
fn half_made_tree_is_made_anew() {
    let shop = Shop::new(SERVES);
    std::fs::create_dir_all(shop.cache().join("fetch-tmp-1/src")).unwrap();
    let found = shop.find(Fetch::Allowed).unwrap();
    assert!(found.path.join("CMakeLists.txt").is_file());
    assert!(!shop.cache().join("fetch-tmp-1").exists());
}

#[test]
fn failing_pip_is_quoted() {
    let shop = Shop::new("echo 'ERROR: no route to host' >&2\nexit 1");
    let message = shop.find(Fetch::Allowed).unwrap_err();
    assert_says(
        &message,
        &[
            "could not fetch fixture 1.0",
            "ERROR: no route to host",
            "check the network",
            "ROLLING_KV_LLAMA_DIR",
        ],
    );
    assert_eq!(names(&shop.cache()), [".lock"]);
}

#[test]
fn missing_python_is_named() {
    let shop = Shop::new(SERVES);
    std::fs::remove_file(shop.shelf().join("python3")).unwrap();
    let env = shop
        .fixture
        .env(&[("PATH", shop.shelf().to_str().unwrap())]);
    let upstream = shop.fixture.upstream();
    let found = source::find_with(
        &shop.fixture.repo,
        &upstream,
        Fetch::Allowed,
        &env,
        &Reporter::default(),
    );
    assert_says(
        &found.unwrap_err().to_string(),
        &["python3 is not on the PATH"],
    );
}

#[test]
fn archive_with_another_hash_is_refused() {
    let shop = Shop::new("echo other > \"$dest/fixture-1.0.tar.gz\"");
    assert_says(
        &shop.find(Fetch::Allowed).unwrap_err(),
        &["fixture-1.0.tar.gz has sha256", "UPSTREAM.toml pins"],
    );
    assert_eq!(names(&shop.cache()), [".lock"]);
}

#[test]
fn tree_with_another_hash_is_refused() {
    let shop = Shop::new(SERVES);
    let sha256 = shop.fixture.upstream().tree_sha256;
    shop.fixture
        .edit("vendor/UPSTREAM.toml", &sha256, common::NO_ARCHIVE);
    assert_says(
        &shop.find(Fetch::Allowed).unwrap_err(),
        &["has sha256", "UPDATING.md"],
    );
    let (upstream, cache) = (shop.fixture.upstream(), shop.cache());
    let printed = fetch::tree_sha256(&upstream, &cache, &shop.env(), &Reporter::default()).unwrap();
    assert_eq!(printed, sha256, "what --print-hash says is what was pinned");
}

#[test]
fn archive_with_a_link_is_refused() {
    let shop = Shop::new(SERVES);
    let tree = shop.fixture.scratch().join("was vendored");
    let links = [("fixture-1.0/vendor/llama.cpp/src/link.h", "/etc/passwd")];
    archive(&tree, &shop.shelf().join(FILE), &links);
    repin(&shop);
    assert_says(
        &shop.find(Fetch::Allowed).unwrap_err(),
        &["src/link.h is a link or a device"],
    );
}

#[test]
fn archive_without_the_tree_is_refused() {
    let shop = Shop::new(SERVES);
    shop.fixture
        .edit("vendor/UPSTREAM.toml", "vendor/llama.cpp", "vendor/nothing");
    assert_says(
        &shop.find(Fetch::Allowed).unwrap_err(),
        &["it has no folder vendor/nothing"],
    );
}

#[test]
fn cut_archive_is_refused() {
    let shop = Shop::new(SERVES);
    let file = shop.shelf().join(FILE);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    repin(&shop);
    assert_says(
        &shop.find(Fetch::Allowed).unwrap_err(),
        &["not a complete .tar.gz"],
    );
}

/// Pins the archive as it lies on the shelf.
fn repin(shop: &Shop) {
    let old = shop.fixture.upstream().sha256;
    let new = hash::file_sha256(&shop.shelf().join(FILE)).unwrap();
    shop.fixture.edit("vendor/UPSTREAM.toml", &old, &new);
}

#[test]
fn vendor_fills_the_checkout_and_is_done_once() {
    let shop = Shop::new(SERVES);
    let vendor = || {
        source::vendor(
            &shop.fixture.repo,
            &shop.fixture.upstream(),
            &shop.env(),
            &Reporter::default(),
        )
    };
    let tree = vendor().unwrap();
    assert_eq!(tree.path, shop.fixture.repo.vendored());
    source::verify(&tree, &shop.fixture.upstream()).unwrap();
    assert_eq!(vendor().unwrap(), tree);
    assert_eq!(shop.calls(), 1);
    assert_eq!(
        names(&shop.fixture.repo.root.join("vendor")),
        ["UPSTREAM.toml", "llama.cpp"]
    );
}

#[test]
fn vendor_replaces_a_tree_of_another_hash() {
    let shop = Shop::new(SERVES);
    shop.fixture.write("vendor/llama.cpp/CMakeLists.txt", "old");
    shop.fixture.write("vendor/llama.cpp.tmp-1/half", "");
    let tree = source::vendor(
        &shop.fixture.repo,
        &shop.fixture.upstream(),
        &shop.env(),
        &Reporter::default(),
    )
    .unwrap();
    source::verify(&tree, &shop.fixture.upstream()).unwrap();
    assert_eq!(
        names(&shop.fixture.repo.root.join("vendor")),
        ["UPSTREAM.toml", "llama.cpp"]
    );
}

#[test]
fn cache_folder_follows_the_environment() {
    let dir = |pairs: &[(&str, &str)]| fetch::cache_dir(&Env::from_pairs(pairs.iter().copied()));
    let home = ("HOME", "/h");
    assert_eq!(dir(&[home]).unwrap(), Path::new("/h/.cache/rolling-kv"));
    assert_eq!(
        dir(&[home, ("XDG_CACHE_HOME", "/x")]).unwrap(),
        Path::new("/x/rolling-kv")
    );
    assert_eq!(
        dir(&[
            home,
            ("XDG_CACHE_HOME", "/x"),
            ("ROLLING_KV_CACHE_DIR", "/r")
        ])
        .unwrap(),
        Path::new("/r")
    );
    assert_says(
        &dir(&[]).unwrap_err().to_string(),
        &["ROLLING_KV_CACHE_DIR is not set"],
    );
}
