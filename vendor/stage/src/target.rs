//! Finds the one native build that debug, release, check, xtask and dependent crates share.

use std::path::{Path, PathBuf};

/// Cargo's target folder, found from a build script's `OUT_DIR` (`<target>/[<triple>/]<profile>/build/<package>/out`).
///
/// Cargo's own marks decide; the shape of the path where there are none yet. A build inside another target folder, as tests
/// that compile crates make it, uses the outer one: that of `repo`, or one that holds a build of ours.
#[must_use]
pub fn from_out_dir(out_dir: &Path, repo: &Path) -> PathBuf {
    let own = repo.join("target");
    if out_dir.starts_with(&own) {
        return own;
    }
    let is_marked =
        |dir: &&Path| dir.join("CACHEDIR.TAG").is_file() || dir.join(".rustc_info.json").is_file();
    let marked: Vec<&Path> = out_dir.ancestors().filter(is_marked).collect();
    let outer = marked
        .iter()
        .rev()
        .find(|dir| dir.join(crate::plan::DIR).is_dir());
    if let Some(dir) = outer.or(marked.first()) {
        return dir.to_path_buf();
    }
    let profile = out_dir.ancestors().nth(3).unwrap_or(out_dir);
    let parent = profile.parent().unwrap_or(profile);
    let is_triple = parent
        .file_name()
        .is_some_and(|name| name.to_string_lossy().matches('-').count() >= 2);
    if is_triple {
        parent.parent().unwrap_or(parent).to_owned()
    } else {
        parent.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_of_the_path_decides_without_marks() {
        let find = |out: &str| from_out_dir(Path::new(out), Path::new("/r"));
        assert_eq!(find("/t/debug/build/p-1/out"), Path::new("/t"));
        assert_eq!(
            find("/t/x86_64-unknown-linux-gnu/release/build/p-1/out"),
            Path::new("/t")
        );
    }

    #[test]
    fn nested_build_uses_the_outer_folder() {
        let out = Path::new("/r/target/tests/target/debug/build/p-1/out");
        assert_eq!(from_out_dir(out, Path::new("/r")), Path::new("/r/target"));
    }

    #[test]
    fn outer_folder_with_a_build_of_ours_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("tests/target/debug/build/p-1/out");
        std::fs::create_dir_all(&out).unwrap();
        for mark in ["CACHEDIR.TAG", "tests/target/CACHEDIR.TAG"] {
            std::fs::write(dir.path().join(mark), "").unwrap();
        }
        assert_eq!(
            from_out_dir(&out, Path::new("/r")),
            dir.path().join("tests/target")
        );
        std::fs::create_dir(dir.path().join("rolling-kv")).unwrap();
        assert_eq!(from_out_dir(&out, Path::new("/r")), dir.path());
    }

    #[test]
    fn marks_of_cargo_decide() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("my target/odd/debug/build/p-1/out");
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(dir.path().join("my target/CACHEDIR.TAG"), "").unwrap();
        assert_eq!(
            from_out_dir(&out, Path::new("/r")),
            dir.path().join("my target")
        );
    }
}
