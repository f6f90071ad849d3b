//! `cargo xtask archs`: what becomes of every architecture with a spilled cache, and the table of it in docs/.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::Variant;

use crate::error::{Error, Result};
use crate::native;
use crate::place::Place;
use crate::process::Run;

/// The program that prints the table.
pub const PROGRAM: &str = "test-rkv-archs";

/// The longest that it may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// How many lines that differ are shown.
const SHOWN: usize = 10;

const INTRODUCTION: &str = "\
# Every architecture with a window

A tiny random model of each architecture that llama.cpp's own test-llama-archs knows is made in memory and run twice over 128
tokens in order `tiled`: with the whole cache on the device, and with a window of 64 cells and the rest in host memory. An
architecture ends as

- equal: every logit of both runs has the same bits, and tiles were read from the tail;
- refused: no context with a window is made, for the reason that is given;
- no KV: it keeps no K and V that could spill.

`cargo xtask archs` prints this table and compares it with this file, and so does `cargo xtask upstream-tests`;
`cargo xtask archs --write` writes it anew.
";

fn file(root: &Path) -> PathBuf {
    root.join("docs/ARCHITECTURES.md")
}

/// Prints the table, and writes it into docs/ or compares it with what stands there.
pub fn run(place: &Place, write: bool) -> Result<()> {
    let built = native::build(place, Variant::Patched, &[PROGRAM])?;
    let ended = Run::new(built.bin_dir().join(PROGRAM))
        .limit(LIMIT)
        .watched(|_, line| println!("{line}"))?
        .success()?;
    let path = file(&place.root);
    if !write {
        return agree(&place.root, &ended.text);
    }
    let page = page(&ended.text)?;
    fs::write(&path, page).map_err(Error::file("write", &path))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The architectures that docs/ lists as refused, and how many cases have one of them.
pub fn refused(root: &Path) -> Result<(Vec<String>, u64)> {
    let path = file(root);
    let page = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(refused_of(&page))
}

fn refused_of(page: &str) -> (Vec<String>, u64) {
    let cells = |line: &str| -> Option<(String, String)> {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.to_owned(), cells.nth(1)?.to_owned()))
    };
    let rows: Vec<(String, String)> = page.lines().filter_map(cells).collect();
    let mut names: Vec<String> = rows
        .iter()
        .filter(|(_, outcome)| outcome == "refused")
        .map(|(name, _)| name.clone())
        .collect();
    names.dedup();
    let cases = rows.iter().filter(|(name, _)| names.contains(name)).count();
    (names, cases as u64)
}

/// An error if the table in docs/ is not the one that was printed.
pub fn agree(root: &Path, printed: &str) -> Result<()> {
    let path = file(root);
    let written = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let expected = page(printed)?;
    if written == expected {
        return Ok(());
    }
    Err(Error::wrong(
        format!(
            "docs/ARCHITECTURES.md is not what {PROGRAM} prints:\n{}",
            difference(&written, &expected)
        ),
        "if the change is wanted, `cargo xtask archs --write` writes the file anew",
    ))
}

/// The file for what the program printed: its sums and its table.
fn page(printed: &str) -> Result<String> {
    let table: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("| ") || line.starts_with("|-"))
        .collect();
    let sums = printed
        .lines()
        .find(|line| line.starts_with("equal: "))
        .filter(|_| table.len() > 2);
    let sums = sums.ok_or_else(|| {
        Error::wrong(
            format!("{PROGRAM} printed no table with an equal architecture"),
            "run it yourself to see more",
        )
    })?;
    Ok(format!(
        "{INTRODUCTION}\n{} cases: {sums}.\n\n{}\n",
        table.len() - 2,
        table.join("\n")
    ))
}

/// The lines that only one of the two has: `-` in the file, `+` as printed.
fn difference(written: &str, expected: &str) -> String {
    let only = |of: &str, other: &str, mark: &str| -> Vec<String> {
        of.lines()
            .filter(|line| !other.lines().any(|same| same == *line))
            .map(|line| format!("{mark} {line}"))
            .collect()
    };
    let mut lines = only(written, expected, "-");
    lines.extend(only(expected, written, "+"));
    let all = lines.len();
    lines.truncate(SHOWN);
    if all > SHOWN {
        lines.push(format!("and {} more", all - SHOWN));
    }
    if lines.is_empty() {
        lines.push("the same lines in another order".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_a_refused_architecture_is_left_out() {
        let page = "| architecture | kind | outcome | detail |\n|---|---|---|---|\n| a | dense | equal | x |\n\
                    | a | MoE | refused | y |\n| b | dense | equal | z |\n";
        assert_eq!(refused_of(page), (vec!["a".to_owned()], 2));
    }

    const PRINTED: &str = "loading\n| architecture | kind | outcome | detail |\n|---|---|---|---|\n\
        | llama | dense | equal | 2 layers split, 4 tiles read |\n| grok | MoE | refused | no flash attention |\n\n\
        equal: 1, refused: 1\n2 passed, 0 failed\n";

    #[test]
    fn the_page_holds_the_table_and_its_sums() {
        let page = page(PRINTED).unwrap();
        assert!(page.starts_with("# Every architecture"));
        assert!(
            page.contains("\n2 cases: equal: 1, refused: 1.\n\n| architecture |"),
            "{page}"
        );
        assert!(page.ends_with("| grok | MoE | refused | no flash attention |\n"));
        assert!(!page.contains("loading") && !page.contains("passed"));
    }

    #[test]
    fn a_table_without_an_equal_architecture_is_no_page() {
        assert!(super::page("| architecture | kind |\n|---|\n").is_err());
        assert!(super::page("equal: 3\n").is_err());
    }

    #[test]
    fn a_changed_row_is_named_with_the_way_out() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        fs::write(file(root.path()), page(PRINTED).unwrap()).unwrap();
        assert!(agree(root.path(), PRINTED).is_ok());

        let other = PRINTED.replace("| equal |", "| different |");
        let error = agree(root.path(), &other).unwrap_err().to_string();
        for part in [
            "- | llama | dense | equal",
            "+ | llama | dense | different",
            "--write",
        ] {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }

    #[test]
    fn a_missing_page_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(agree(root.path(), PRINTED).is_err());
    }
}
