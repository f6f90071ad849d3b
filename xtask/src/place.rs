//! Where the repository, the target folder and the user's cache are.

use std::env;
use std::ffi::OsString;
use std::path::{self, Path, PathBuf};

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
        let target = named_target(env::var_os("CARGO_TARGET_DIR"))
            .or_else(target_of_this_program)
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

/// The folder that the person named, as cargo reads it.
fn named_target(variable: Option<OsString>) -> Option<PathBuf> {
    let named = variable.filter(|value| !value.is_empty())?;
    path::absolute(named).ok()
}

/// The folder that cargo marked around this program. One that something else had made before has no mark.
fn target_of_this_program() -> Option<PathBuf> {
    let exe = env::current_exe().ok()?;
    exe.ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map(Path::to_owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_target_folder_is_used_and_an_empty_name_is_none() {
        assert_eq!(
            named_target(Some("/tmp/t".into())),
            Some(PathBuf::from("/tmp/t"))
        );
        let relative = named_target(Some("t".into())).unwrap();
        assert!(relative.is_absolute() && relative.ends_with("t"));
        assert_eq!(named_target(Some("".into())), None);
        assert_eq!(named_target(None), None);
    }
}
