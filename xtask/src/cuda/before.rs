//! Upstream's CUDA files as they were before the patches, with the same line numbers: kernels print the line they stand on.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// What the CUDA files read of the tree.
const FOLDERS: [&str; 4] = ["ggml/include", "ggml/src", "ggml/src/ggml-cuda", "rkv"];

/// Makes `out` such a tree: a copy of `patched` in which the lines that a patch added to `files` are empty.
pub fn make(patched: &Path, pristine: &Path, files: &[&str], out: &Path) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out).map_err(Error::file("remove", out))?;
    }
    for folder in FOLDERS {
        // Below ggml/src lie other backends: of it, the headers are enough.
        let deep = folder != "ggml/src";
        copy(&patched.join(folder), &out.join(folder), deep)?;
    }
    for file in files {
        let read = |root: &Path| {
            let path = root.join(file);
            fs::read_to_string(&path).map_err(Error::file("read", &path))
        };
        let text = blanked(&read(patched)?, &read(pristine)?).ok_or_else(|| {
            let next = "`cargo xtask patches check` says which patch does more than add lines";
            Error::wrong(
                format!("{file} does not hold the lines of upstream's in their order"),
                next,
            )
        })?;
        let path = out.join(file);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

/// `patched` with every line empty that `pristine` does not have; `None` where `pristine` has one that is not there.
fn blanked(patched: &str, pristine: &str) -> Option<String> {
    let mut rest = pristine.lines().peekable();
    let mut text = String::with_capacity(patched.len());
    for line in patched.lines() {
        if rest.next_if_eq(&line).is_some() {
            text.push_str(line);
        }
        text.push('\n');
    }
    rest.peek().is_none().then_some(text)
}

fn copy(from: &Path, to: &Path, deep: bool) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::file("make", to))?;
    for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
        let entry = entry.map_err(Error::file("list", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if deep {
                copy(&path, &target, deep)?;
            }
        } else {
            fs::copy(&path, &target).map_err(Error::file("copy", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_lines_become_empty_and_the_others_keep_their_numbers() {
        let text = blanked("a\nhook();\nb\n\nhook();\nb\n", "a\nb\n\nb\n").unwrap();
        assert_eq!(text, "a\n\nb\n\n\nb\n");
    }

    #[test]
    fn a_line_of_upstreams_that_is_gone_is_noticed() {
        assert_eq!(blanked("a\nc\n", "a\nb\nc\n"), None);
        assert_eq!(blanked("b\na\n", "a\nb\n"), None);
    }

    #[test]
    fn the_tree_is_a_copy_but_for_the_lines_that_were_added() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for folder in FOLDERS {
            write(&format!("patched/{folder}/a.h"), "header");
        }
        write("patched/ggml/src/other/b.h", "other");
        write("patched/ggml/src/ggml-cuda/x.cu", "one\nhook\ntwo\n");
        write("pristine/ggml/src/ggml-cuda/x.cu", "one\ntwo\n");
        let path = |name: &str| dir.path().join(name);
        let files = ["ggml/src/ggml-cuda/x.cu"];
        make(&path("patched"), &path("pristine"), &files, &path("out")).unwrap();
        let text = fs::read_to_string(path("out").join(files[0])).unwrap();
        assert_eq!(text, "one\n\ntwo\n");
        assert!(path("out/rkv/a.h").is_file() && path("out/ggml/src/a.h").is_file());
        assert!(!path("out/ggml/src/other").exists());
    }
}
