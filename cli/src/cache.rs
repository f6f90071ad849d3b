//! The user's cache folder, and the models that `rolling-kv fetch` keeps in it.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// No folder to cache in could be named.
#[derive(Debug, thiserror::Error)]
#[error(
    "no cache folder: none of ROLLING_KV_CACHE_DIR, XDG_CACHE_HOME and HOME is set\n  \
     next: set ROLLING_KV_CACHE_DIR to a folder that you may write to"
)]
pub struct NoCacheFolder;

/// The folder of this program's cached files: `$ROLLING_KV_CACHE_DIR`, else `rolling-kv` in `$XDG_CACHE_HOME`, else
/// `~/.cache/rolling-kv`. It may not exist yet. A variable that is set but empty counts as unset.
pub fn folder() -> Result<PathBuf, NoCacheFolder> {
    folder_from(|name| env::var_os(name))
}

/// The folder that fetched models are kept in.
pub fn models() -> Result<PathBuf, NoCacheFolder> {
    Ok(folder()?.join("models"))
}

fn folder_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoCacheFolder> {
    let path = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = path("ROLLING_KV_CACHE_DIR") {
        return Ok(own);
    }
    // The XDG specification says that a relative path there is to be ignored.
    if let Some(xdg) = path("XDG_CACHE_HOME").filter(|folder| folder.is_absolute()) {
        return Ok(xdg.join("rolling-kv"));
    }
    path("HOME")
        .map(|home| home.join(".cache/rolling-kv"))
        .ok_or(NoCacheFolder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        let find = |name: &str| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        folder_from(find).ok()
    }

    #[test]
    fn own_variable_wins_over_xdg_and_home() {
        let all = [
            ("ROLLING_KV_CACHE_DIR", "/own"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        assert_eq!(with(&all), Some(PathBuf::from("/own")));
        assert_eq!(with(&all[1..]), Some(PathBuf::from("/xdg/rolling-kv")));
        assert_eq!(
            with(&all[2..]),
            Some(PathBuf::from("/home/me/.cache/rolling-kv"))
        );
    }

    #[test]
    fn empty_variables_count_as_unset() {
        assert_eq!(
            with(&[("ROLLING_KV_CACHE_DIR", ""), ("HOME", "/h")]),
            Some(PathBuf::from("/h/.cache/rolling-kv"))
        );
        assert_eq!(with(&[("HOME", "")]), None);
    }

    #[test]
    fn relative_xdg_folder_is_ignored() {
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "rel"), ("HOME", "/h")]),
            Some(PathBuf::from("/h/.cache/rolling-kv"))
        );
    }
}
