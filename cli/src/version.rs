//! Versions, each read from the one file that decides it.

use std::sync::LazyLock;

/// Version of this program.
pub const OURS: &str = env!("CARGO_PKG_VERSION");

/// Which llama.cpp the build takes.
const UPSTREAM: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../vendor/UPSTREAM.toml"
));

/// Which patches the build applies to it.
const SERIES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../patches/series"));

/// The text value of `key` in the record of the pinned llama.cpp; `unknown` if it has none.
pub fn pinned(key: &str) -> &'static str {
    let value = |line: &'static str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches('"'))
    };
    UPSTREAM.lines().find_map(value).unwrap_or("unknown")
}

/// The patches, in the order in which they are applied.
pub fn patches() -> impl Iterator<Item = &'static str> {
    SERIES
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

static LONG: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{OURS}\nllama.cpp {} (commit {}), ggml {}, {} patches",
        pinned("llama_cpp_version"),
        pinned("llama_cpp_commit"),
        pinned("ggml_version"),
        patches().count()
    )
});

/// What `--version` prints after the program's name.
pub fn long() -> &'static str {
    &LONG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_commit_and_the_patches_are_known() {
        assert!(
            pinned("llama_cpp_commit")
                .chars()
                .all(|digit| digit.is_ascii_hexdigit()),
            "{}",
            pinned("llama_cpp_commit")
        );
        assert_eq!(pinned("no such key"), "unknown");
        assert!(patches().all(|name| name.ends_with(".patch")));
        assert!(patches().count() > 0);
    }
}
