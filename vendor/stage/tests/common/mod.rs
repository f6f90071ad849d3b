//! A copy of `tests/fixture` to break and build: a tiny upstream, patches and kernels. The folder's name has a blank in it, as
//! a user's may have.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use rolling_kv_stage::env::Env;
use rolling_kv_stage::overlay::Overlay;
use rolling_kv_stage::series::Series;
use rolling_kv_stage::source::{Origin, SourceTree};
use rolling_kv_stage::tools::{Search, Toolchain};
use rolling_kv_stage::{Built, Plan, Repo, Result, Upstream, Variant, hash, tree};
use std::path::{Path, PathBuf};

/// The SHA-256 that a fixture without an archive pins.
pub const NO_ARCHIVE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A checkout with the fixture's patches and kernels, whose `vendor/llama.cpp` is the fixture's upstream.
pub struct Fixture {
    dir: tempfile::TempDir,
    pub repo: Repo,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("rolling kv ")
            .tempdir()
            .unwrap();
        let root = dir.path().join("check out");
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
        copy(&fixture.join("patches"), &root.join("patches"));
        copy(&fixture.join("kernels"), &root.join("kernels"));
        copy(&fixture.join("upstream"), &root.join("vendor/llama.cpp"));
        let this = Self {
            dir,
            repo: Repo::new(root),
        };
        std::fs::remove_dir_all(this.repo.vendored().join("docs")).unwrap();
        this.pin(NO_ARCHIVE, 0);
        this
    }

    /// A folder of the test's own.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Cargo's target folder.
    pub fn target(&self) -> PathBuf {
        self.dir.path().join("the target")
    }

    /// Pins the tree as it is now.
    pub fn pin(&self, archive_sha256: &str, archive_bytes: u64) {
        let tree_sha256 = hash::tree_sha256(&self.repo.vendored()).unwrap();
        let text = format!(
            "package = \"fixture\"\nversion = \"1.0\"\nfile = \"fixture-1.0.tar.gz\"\nbytes = {archive_bytes}\n\
             sha256 = \"{archive_sha256}\"\nsubdir = \"vendor/llama.cpp\"\nllama_cpp_commit = \"abc1234\"\n\
             llama_cpp_version = \"0.1.0\"\nggml_version = \"0.1.0\"\ntree_sha256 = \"{tree_sha256}\"\nexclude = [\"docs\"]\n"
        );
        std::fs::write(self.repo.upstream_file(), text).unwrap();
    }

    pub fn upstream(&self) -> Upstream {
        Upstream::read(&self.repo).unwrap()
    }

    pub fn source(&self) -> SourceTree {
        SourceTree {
            path: self.repo.vendored(),
            origin: Origin::Vendored,
        }
    }

    /// The text of a file of the checkout.
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.repo.root.join(file)).unwrap()
    }

    /// Writes a file of the checkout.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.repo.root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Replaces `from`, which must be there, in a file of the checkout.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "{file} does not hold {from:?}");
        self.write(file, &text.replacen(from, to, 1));
    }

    /// Stages into `<scratch>/stage`.
    pub fn stage(&self) -> Result<PathBuf> {
        let (upstream, source) = (self.upstream(), self.source());
        let series = Series::read(&self.repo.patches())?;
        let kernels = self.repo.kernels();
        let request = tree::Request {
            source: &source.path,
            exclude: &upstream.exclude,
            tree_sha256: source.pinned(&upstream),
            series: Some(&series),
            overlay: Some(Overlay {
                kernels: &kernels,
                stamp: "test",
            }),
        };
        tree::stage(&self.scratch().join("stage"), &request)
    }

    /// The message with which staging is refused.
    pub fn refusal(&self) -> String {
        match self.stage() {
            Ok(path) => panic!("staged {} although it is broken", path.display()),
            Err(error) => error.to_string(),
        }
    }

    /// The environment of this process, with the cache in the fixture.
    pub fn env(&self, more: &[(&str, &str)]) -> Env {
        let keep = ["PATH", "HOME", "CC", "CXX", "LIBCLANG_PATH"];
        let mut pairs: Vec<(String, std::ffi::OsString)> = keep
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)))
            .collect();
        pairs.push((
            "ROLLING_KV_CACHE_DIR".to_owned(),
            self.scratch().join("the cache").into(),
        ));
        pairs.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).into())),
        );
        Env::from_pairs(pairs)
    }

    pub fn plan(&self, variant: Variant) -> Plan {
        Plan::new(&self.repo.root, &self.target(), variant, self.env(&[]))
            .unwrap()
            .with_tool_dir(&own_tools())
    }
}

/// Where `cargo xtask setup` puts the tools of the checkout that is tested.
pub fn own_tools() -> PathBuf {
    own_root().join("target/tools")
}

/// The checkout that is tested.
pub fn own_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Whether this machine has the tools; says why not.
pub fn has_tools() -> bool {
    let search = Search::new(Env::from_process(), &own_root(), &own_root().join("target"));
    match Toolchain::find(&search) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIP: {error}");
            false
        }
    }
}

/// Stages and builds.
pub fn build(plan: &Plan) -> Built {
    plan.stage()
        .unwrap()
        .compile(&[])
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &target);
        } else {
            std::fs::write(&target, std::fs::read(item.path()).unwrap()).unwrap();
        }
    }
}

/// The names in a folder, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let items = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = items
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Asserts that `text` holds each of `parts`.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
