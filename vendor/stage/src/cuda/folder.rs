//! A folder that holds the libraries of the CPU's build and the CUDA module side by side, as the loader wants them.
//!
//! The CPU's own folder stays as it is: a program that was built without the feature finds no CUDA module there.

use super::Module;
use crate::error::{IoContext, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What an entry of the folder is.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    /// A second name of this file. Programs look for their libraries where they lie themselves, so a symbolic link will not do.
    File(PathBuf),
    /// A symbolic link with this target.
    Link(PathBuf),
}

/// Makes `out` hold what is in `bin`, the module, and links to the toolkit's libraries; what else was there goes.
pub(crate) fn lay_out(bin: &Path, module: &Module, out: &Path) -> Result<()> {
    let mut wanted = entries(bin)?;
    let mut add = |file: &Path, entry| {
        if let Some(name) = file.file_name() {
            wanted.insert(name.to_owned(), entry);
        }
    };
    add(&module.file, Entry::File(module.file.clone()));
    for library in module.toolkit.runtime() {
        add(&library, Entry::Link(library.clone()));
    }
    std::fs::create_dir_all(out).at("make", out)?;
    for (name, entry) in &wanted {
        put(&out.join(name), entry)?;
    }
    for item in std::fs::read_dir(out).at("list", out)? {
        let item = item.at("list", out)?;
        if !wanted.contains_key(&item.file_name()) {
            let path = item.path();
            std::fs::remove_file(&path).at("delete", &path)?;
        }
    }
    Ok(())
}

fn entries(bin: &Path) -> Result<BTreeMap<OsString, Entry>> {
    let mut found = BTreeMap::new();
    for item in std::fs::read_dir(bin).at("list", bin)? {
        let item = item.at("list", bin)?;
        let path = item.path();
        let kind = item.file_type().at("look at", &path)?;
        let entry = if kind.is_symlink() {
            Entry::Link(std::fs::read_link(&path).at("read", &path)?)
        } else if kind.is_file() {
            Entry::File(path)
        } else {
            continue;
        };
        found.insert(item.file_name(), entry);
    }
    Ok(found)
}

/// Puts an entry in its place; one that is right already stays. What runs from an older file goes on with that.
fn put(place: &Path, entry: &Entry) -> Result<()> {
    if is_right(place, entry) {
        return Ok(());
    }
    match std::fs::remove_file(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        other => other.at("replace", place)?,
    }
    match entry {
        Entry::File(file) => std::fs::hard_link(file, place).at("link", place),
        #[cfg(unix)]
        Entry::Link(target) => std::os::unix::fs::symlink(target, place).at("link", place),
        #[cfg(not(unix))]
        Entry::Link(_) => Ok(()),
    }
}

fn is_right(place: &Path, entry: &Entry) -> bool {
    match entry {
        Entry::Link(target) => std::fs::read_link(place).is_ok_and(|found| found == *target),
        Entry::File(file) => is_same_file(place, file),
    }
}

#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        path.symlink_metadata()
            .map(|data| (data.dev(), data.ino()))
            .ok()
    };
    identity(a).is_some() && identity(a) == identity(b)
}

#[cfg(not(unix))]
fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::cuda::{Archs, Toolkit};
    use std::fs;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for file in [
                "cpu/bin/libllama.so.0",
                "cuda/bin/libggml-cuda.so",
                "toolkit/bin/nvcc",
                "toolkit/lib/libcudart.so.13",
            ] {
                place.write(file, file);
            }
            std::os::unix::fs::symlink("libllama.so.0", place.path("cpu/bin/libllama.so")).unwrap();
            place
        }

        fn path(&self, file: &str) -> PathBuf {
            self.0.path().join(file)
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.path(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&path);
            fs::write(path, text).unwrap();
        }

        fn lay_out(&self) {
            let module = Module {
                file: self.path("cuda/bin/libggml-cuda.so"),
                build: self.path("cuda"),
                log: PathBuf::new(),
                archs: Archs::default(),
                toolkit: Toolkit::of(&self.path("toolkit/bin/nvcc")),
                stamp: String::new(),
            };
            lay_out(&self.path("cpu/bin"), &module, &self.path("out")).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let items = fs::read_dir(self.path("out")).unwrap();
            let mut names: Vec<_> = items
                .map(|item| item.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn the_folder_holds_both_and_programs_in_it_are_files() {
        let place = Place::new();
        place.lay_out();
        let all = [
            "libcudart.so.13",
            "libggml-cuda.so",
            "libllama.so",
            "libllama.so.0",
        ];
        assert_eq!(place.names(), all);
        let is_file = |name: &str| place.path(name).symlink_metadata().unwrap().is_file();
        assert!(is_file("out/libllama.so.0") && is_file("out/libggml-cuda.so"));
        assert!(!place.path("cpu/bin/libggml-cuda.so").exists());
    }

    #[test]
    fn what_was_built_anew_replaces_the_older_and_what_is_gone_goes() {
        let place = Place::new();
        place.lay_out();
        place.write("cpu/bin/libllama.so.0", "newer");
        place.write("out/libggml-old.so", "");
        fs::remove_file(place.path("cpu/bin/libllama.so")).unwrap();
        place.lay_out();
        place.lay_out();
        assert_eq!(
            fs::read_to_string(place.path("out/libllama.so.0")).unwrap(),
            "newer"
        );
        assert_eq!(
            place.names(),
            ["libcudart.so.13", "libggml-cuda.so", "libllama.so.0"]
        );
    }
}
