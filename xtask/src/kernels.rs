//! Compiles our C++ once more with every warning as an error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rolling_kv_stage::{Repo, Variant};
use serde_json::Value;

use crate::digest;
use crate::error::{Error, Result};
use crate::native;
use crate::parallel;
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;

/// One compilation as cmake recorded it.
#[derive(Debug, PartialEq, Eq)]
pub struct Compilation {
    /// The source.
    pub file: PathBuf,
    /// Where the command runs.
    directory: PathBuf,
    /// What a shell is told.
    pub command: String,
}

/// Checks every source of ours that is compiled into the tree, and that each file in `kernels/src` is.
pub fn check(place: &Place) -> Result<Counts> {
    let built = native::build(place, Variant::Patched, &[])?;
    let root = native::staged_root(place)?;
    let build = built.bin_dir().parent().unwrap_or(built.bin_dir());
    let list = build.join("compile_commands.json");
    let text = fs::read_to_string(&list).map_err(Error::file("read", &list))?;
    let ours = compilations(&text, &root.join("rkv"));
    require_all(&Repo::new(&place.root).kernels().join("src"), &ours)?;
    let stamp = place.work().join("kernel-warnings.txt");
    let inputs = inputs(&root.join("rkv"), &ours)?;
    if fs::read_to_string(&stamp).is_ok_and(|checked| checked == inputs) {
        println!(
            "nothing changed since {} files were found without a warning",
            ours.len()
        );
        return Ok(Counts::new(ours.len() as u64, 0, 0));
    }
    let counts = parallel::each(&ours, Compilation::strict)?;
    if counts.failed == 0 {
        fs::create_dir_all(place.work()).map_err(Error::file("make", &place.work()))?;
        fs::write(&stamp, inputs).map_err(Error::file("write", &stamp))?;
    }
    Ok(counts)
}

/// A digest of every command and of every file of ours that one of them may read.
fn inputs(folder: &Path, compilations: &[Compilation]) -> Result<String> {
    let commands = compilations.iter().map(|one| one.command.as_str());
    digest::of(commands, &[folder])
}

impl Compilation {
    /// Compiles without making an object; any warning is a failure.
    fn strict(&self) -> Result<Counts> {
        let command = format!("{} -Wall -Wextra -Werror -fsyntax-only", self.command);
        let ended = Run::new("sh")
            .args(["-c", &command])
            .dir(&self.directory)
            .quietly()?;
        if ended.status.success() {
            return Ok(Counts::ONE);
        }
        println!(
            "WARNINGS in {}:\n{}",
            self.file.display(),
            ended.text.trim_end()
        );
        Ok(Counts::new(0, 1, 0))
    }
}

/// The compilations of files below `folder`.
pub fn compilations(list: &str, folder: &Path) -> Vec<Compilation> {
    let entries: Vec<Value> = serde_json::from_str(list).unwrap_or_default();
    let text =
        |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let read = |entry: &Value| {
        let (file, directory) = (
            PathBuf::from(text(entry, "file")?),
            PathBuf::from(text(entry, "directory")?),
        );
        Some(Compilation {
            file,
            directory,
            command: text(entry, "command")?,
        })
    };
    entries
        .iter()
        .filter_map(read)
        .filter(|one| one.file.starts_with(folder))
        .collect()
}

/// An error if a source file in `folder` is not compiled at all.
fn require_all(folder: &Path, compiled: &[Compilation]) -> Result<()> {
    let names: BTreeSet<_> = compiled
        .iter()
        .filter_map(|one| one.file.file_name())
        .collect();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let path = entry.map_err(Error::file("list", folder))?.path();
        let is_source = path
            .extension()
            .is_some_and(|end| end == "cpp" || end == "c");
        if is_source && path.file_name().is_some_and(|name| !names.contains(name)) {
            let what = format!("{} is not compiled into the tree", path.display());
            return Err(Error::wrong(
                what,
                "name it in kernels/llama.cmake or kernels/ggml.cmake, or remove it",
            ));
        }
    }
    if compiled.is_empty() {
        return Err(Error::wrong(
            "no file of ours is compiled into the tree",
            "look at kernels/llama.cmake and kernels/ggml.cmake",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[
        {"directory": "/b", "command": "c++ -c /s/src/llama.cpp", "file": "/s/src/llama.cpp"},
        {"directory": "/b", "command": "c++ -c /s/rkv/src/rkv-abi.cpp", "file": "/s/rkv/src/rkv-abi.cpp"}
    ]"#;

    #[test]
    fn only_our_files_are_checked() {
        let ours = compilations(LIST, Path::new("/s/rkv"));
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].command, "c++ -c /s/rkv/src/rkv-abi.cpp");
    }

    #[test]
    fn a_source_that_nobody_compiles_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let ours = compilations(LIST, Path::new("/s/rkv"));
        fs::write(dir.path().join("rkv-abi.cpp"), "").unwrap();
        fs::write(dir.path().join("rkv-abi.h"), "").unwrap();
        require_all(dir.path(), &ours).unwrap();
        fs::write(dir.path().join("rkv-lost.cpp"), "").unwrap();
        assert!(
            require_all(dir.path(), &ours)
                .unwrap_err()
                .to_string()
                .contains("rkv-lost.cpp")
        );
    }

    #[test]
    fn a_warning_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let one = |text: &str| {
            fs::write(dir.path().join("a.c"), text).unwrap();
            let directory = dir.path().to_owned();
            Compilation {
                file: "a.c".into(),
                directory,
                command: "cc -c a.c".into(),
            }
            .strict()
            .unwrap()
        };
        assert_eq!(one("int f(void) { return 1; }\n"), Counts::ONE);
        assert_eq!(
            one("int f(void) { int unused; return 1; }\n"),
            Counts::new(0, 1, 0)
        );
    }

    #[test]
    fn any_change_of_a_file_or_of_a_command_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let ours = compilations(LIST, Path::new("/s/rkv"));
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/a.h"), "one").unwrap();
        let first = inputs(dir.path(), &ours).unwrap();
        assert_eq!(inputs(dir.path(), &ours).unwrap(), first);
        assert_ne!(inputs(dir.path(), &[]).unwrap(), first);
        fs::write(dir.path().join("src/a.h"), "two").unwrap();
        assert_ne!(inputs(dir.path(), &ours).unwrap(), first);
    }

    #[test]
    fn nothing_compiled_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(require_all(dir.path(), &[]).is_err());
    }
}
