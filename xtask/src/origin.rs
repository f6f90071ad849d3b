//! Programs that name their libraries by whole paths, made to find them beside themselves.

use std::fs;
use std::path::Path;

use object::{Object, ObjectSection};

use crate::error::{Error, Result};

/// What the system's loader replaces by the program's own folder.
const ORIGIN: &str = "$ORIGIN/";

/// The tag of an entry that names a library.
const NEEDED: u64 = 1;

/// Bytes of an entry of the dynamic section: a tag and a value.
const ENTRY: usize = 16;

/// Has `file` look in its own folder for each library that it names by a whole path. Answers how many there were.
pub fn beside(file: &Path) -> Result<usize> {
    let mut data = fs::read(file).map_err(Error::file("read", file))?;
    let changed = rewrite(&mut data).ok_or_else(|| {
        Error::wrong(
            format!(
                "{} is no program for x86-64 or aarch64 whose libraries can be moved",
                file.display()
            ),
            "build it again, in a folder with a path of ten letters or more",
        )
    })?;
    if changed > 0 {
        fs::write(file, &data).map_err(Error::file("write", file))?;
    }
    Ok(changed)
}

/// The new name is written over the end of the old one, and the entry points there: nothing moves.
fn rewrite(data: &mut [u8]) -> Option<usize> {
    let (entries, strings) = {
        let file = object::File::parse(&*data).ok()?;
        let range = |name| file.section_by_name(name)?.file_range();
        (range(".dynamic")?, range(".dynstr")?)
    };
    let (entries, strings) = (place(entries)?, place(strings)?);
    let mut changed = 0;
    for at in entries.step_by(ENTRY) {
        let word = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let (tag, value) = (word(at)?, word(at + 8)?);
        if tag != NEEDED {
            continue;
        }
        let begin = strings.start.checked_add(usize::try_from(value).ok()?)?;
        let rest = data.get(begin..strings.end)?;
        let end = begin + rest.iter().position(|&byte| byte == 0)?;
        let name = std::str::from_utf8(&data[begin..end]).ok()?;
        if !name.starts_with('/') {
            continue;
        }
        let new = format!("{ORIGIN}{}", name.rsplit('/').next()?);
        let start = end.checked_sub(new.len()).filter(|start| *start >= begin)?;
        data[start..end].copy_from_slice(new.as_bytes());
        let moved = value + (start - begin) as u64;
        data[at + 8..at + ENTRY].copy_from_slice(&moved.to_le_bytes());
        changed += 1;
    }
    Some(changed)
}

fn place((offset, bytes): (u64, u64)) -> Option<std::ops::Range<usize>> {
    Some(usize::try_from(offset).ok()?..usize::try_from(offset + bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Run;

    fn cc(dir: &Path, args: &[&str]) {
        let run = Run::new("cc").args(args).dir(dir);
        run.quietly().unwrap().success().unwrap();
    }

    #[test]
    fn a_program_that_names_a_whole_path_runs_after_it_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (built, moved) = (dir.path().join("where it was built"), dir.path().join("b"));
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(&moved).unwrap();
        fs::write(built.join("a.c"), "int answer(void) { return 42; }").unwrap();
        fs::write(
            built.join("m.c"),
            "int answer(void); int main(void) { return answer() - 42; }",
        )
        .unwrap();
        let library = built.join("liba.so");
        let library = library.to_str().unwrap();
        cc(
            &built,
            &[
                "-shared",
                "-fPIC",
                "a.c",
                "-o",
                "liba.so",
                &format!("-Wl,-soname,{library}"),
            ],
        );
        cc(&built, &["m.c", library, "-o", "m"]);
        fs::rename(built.join("liba.so"), moved.join("liba.so")).unwrap();
        fs::rename(built.join("m"), moved.join("m")).unwrap();
        let run = || {
            Run::new(moved.join("m"))
                .dir("/")
                .quietly()
                .unwrap()
                .status
                .success()
        };
        assert!(!run());
        assert_eq!(beside(&moved.join("m")).unwrap(), 1);
        assert!(run());
        assert_eq!(beside(&moved.join("m")).unwrap(), 0);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        fs::write(&file, "text").unwrap();
        assert!(
            beside(&file)
                .unwrap_err()
                .to_string()
                .contains("text is no program")
        );
    }
}
