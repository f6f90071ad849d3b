//! Which shared libraries a program or library names, and which of them lie beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader};

use crate::error::{Error, Result};

/// The names in the file's `DT_NEEDED` entries, in order.
pub fn needed(file: &Path) -> Result<Vec<String>> {
    let data = fs::read(file).map_err(Error::file("read", file))?;
    names(&data).map_err(|error| {
        Error::wrong(
            format!(
                "{} cannot be read as a program or library: {error}",
                file.display()
            ),
            "delete it and build it again",
        )
    })
}

/// The names of all files in `folder` that `first` need, directly or through each other; `first` are not in it.
pub fn closure(folder: &Path, first: &[String]) -> Result<BTreeSet<String>> {
    let mut open: Vec<String> = first.to_vec();
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        for library in needed(&folder.join(&name))? {
            if folder.join(&library).is_file()
                && !first.contains(&library)
                && found.insert(library.clone())
            {
                open.push(library);
            }
        }
    }
    Ok(found)
}

fn names(data: &[u8]) -> object::Result<Vec<String>> {
    let file = ElfFile64::<object::Endianness>::parse(data)?;
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, data, strings)?;
    let needed = entries
        .iter()
        .take_while(|entry| entry.tag(endian) != elf::DT_NULL);
    needed
        .filter(|entry| entry.tag(endian) == elf::DT_NEEDED)
        .map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned()))
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::process::Run;

    /// A library called `name` in `folder` that needs `uses`.
    pub fn library(folder: &Path, name: &str, uses: &[&str]) {
        let mut run = Run::new("cc").args([
            "-shared",
            "-nostdlib",
            "-Wl,--no-as-needed",
            "-x",
            "c",
            "/dev/null",
            "-x",
            "none",
            "-L.",
        ]);
        run = run
            .arg(format!("-Wl,-soname,{name}"))
            .args(uses.iter().map(|name| format!("-l:{name}")));
        run.args(["-o", name])
            .dir(folder)
            .quietly()
            .unwrap()
            .success()
            .unwrap();
    }

    #[test]
    fn the_closure_follows_libraries_of_libraries_and_leaves_the_systems_out() {
        let dir = tempfile::tempdir().unwrap();
        library(dir.path(), "libbase.so.0", &[]);
        library(dir.path(), "libmiddle.so.0", &["libbase.so.0"]);
        library(dir.path(), "libunused.so", &["libbase.so.0"]);
        library(dir.path(), "program", &["libmiddle.so.0"]);
        assert_eq!(
            needed(&dir.path().join("program")).unwrap(),
            ["libmiddle.so.0"]
        );
        let all = closure(dir.path(), &["program".to_owned()]).unwrap();
        assert_eq!(
            all.into_iter().collect::<Vec<_>>(),
            ["libbase.so.0", "libmiddle.so.0"]
        );
    }

    #[test]
    fn the_systems_libraries_are_named_but_not_in_the_closure() {
        let exe = std::env::current_exe().unwrap();
        assert!(
            needed(&exe)
                .unwrap()
                .iter()
                .any(|name| name.starts_with("libc."))
        );
        let name = exe.file_name().unwrap().to_string_lossy().into_owned();
        assert!(closure(exe.parent().unwrap(), &[name]).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_no_program_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("notes.txt");
        fs::write(&file, "hello").unwrap();
        assert!(needed(&file).unwrap_err().to_string().contains("notes.txt"));
    }
}
