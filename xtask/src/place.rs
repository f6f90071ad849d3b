//! Where the repository, the target folder and the user's cache are.

use std::env;
use std::path::{Path, PathBuf};

/// The folders that the chores work in.
#[derive(Debug, Clone)]
pub struct Place {
    /// The repository.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
}

impl Place {
    /// Finds the folders from cargo's environment and from where this program lies.
    pub fn find() -> Self {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .map_or_else(|| manifest.clone(), Path::to_owned);
        let target = env::current_exe()
            .ok()
            .and_then(|exe| {
                exe.ancestors()
                    .find(|dir| dir.join("CACHEDIR.TAG").is_file())
                    .map(Path::to_owned)
            })
            .unwrap_or_else(|| root.join("target"));
        Self { root, target }
    }

    /// Everything of ours under the target folder that is not cargo's.
    pub fn work(&self) -> PathBuf {
        self.target.join("rolling-kv")
    }

    /// A folder for the logs of one chore.
    pub fn logs(&self) -> PathBuf {
        self.work().join("logs")
    }

    /// Where the tools from wheels are installed.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Cargo, as the one that runs us.
    pub fn cargo() -> PathBuf {
        env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
    }
}

/// The user's cache folder: `ROLLING_KV_CACHE_DIR`, else `XDG_CACHE_HOME/rolling-kv`, else `~/.cache/rolling-kv`.
pub fn user_cache() -> Option<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("ROLLING_KV_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("rolling-kv")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/rolling-kv")))
}
