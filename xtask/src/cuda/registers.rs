//! `cargo xtask cuda registers`: what the assembler says of our kernels, and of upstream's in the files that a patch touches,
//! before and after the patch.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rolling_kv_stage::series::Series;
use rolling_kv_stage::{Plan, Repo, Variant};

use super::cubin::{self, Cubin};
use super::kernels::CARDS;
use super::ptxas::Kernel;
use super::setup::{self, Parts};
use super::{before, names};
use crate::error::{Error, Result};
use crate::kernels::{Compilation, compilations};
use crate::native;
use crate::place::Place;
use crate::progress::Work;

/// Where upstream's CUDA files lie in the tree.
const UPSTREAM: &str = "ggml/src/ggml-cuda";

/// What is looked at: the tree, what was recorded of its build, and the files that a patch touches.
struct Subject {
    root: PathBuf,
    compilations: Vec<Compilation>,
    touched: Vec<String>,
    scratch: PathBuf,
}

/// Compiles, prints both tables and writes them to a file.
pub fn run(place: &Place) -> Result<()> {
    let subject = subject(place)?;
    let ours = subject.ours()?;
    let pairs = subject.upstreams(place)?;
    let mut text = table(&ours);
    text.push_str(&comparison(&pairs));
    print!("{text}");
    let file = place.logs().join("cuda-registers.md");
    fs::create_dir_all(place.logs()).map_err(Error::file("make", &place.logs()))?;
    fs::write(&file, &text).map_err(Error::file("write", &file))?;
    println!("\nwritten to {}", file.display());
    verdict(&ours, &pairs)
}

fn subject(place: &Place) -> Result<Subject> {
    crate::setup::ensure(place)?;
    setup::ensure(place, Parts::All)?;
    let work = Work::start("configuring the CUDA module");
    let plan = Plan::for_repo(&place.root, &place.target, Variant::Patched)?;
    let staged = plan.with_reporter(work.reporter()).stage()?;
    let build = staged.configure_cuda()?;
    let root = staged.release();
    work.done("");
    let list = build.join("compile_commands.json");
    let text = fs::read_to_string(&list).map_err(Error::file("read", &list))?;
    let scratch = place.work().join("cuda-registers");
    fs::create_dir_all(&scratch).map_err(Error::file("make", &scratch))?;
    let series = Series::read(&Repo::new(&place.root).patches())?;
    let targets = series
        .patches
        .iter()
        .flat_map(|patch| &patch.files)
        .map(|file| file.target.clone());
    Ok(Subject {
        compilations: compilations(&text, &root),
        touched: targets
            .filter(|target| target.starts_with(UPSTREAM))
            .collect(),
        root,
        scratch,
    })
}

/// A file's kernels before and after the patches.
struct Pair {
    file: String,
    arch: u32,
    before: Cubin,
    after: Cubin,
}

impl Subject {
    /// The kernels of our own files.
    fn ours(&self) -> Result<Vec<Kernel>> {
        let folder = self.root.join("rkv/cuda");
        let is_cuda = |file: &Path| file.extension().is_some_and(|end| end == "cu");
        let files: Vec<&Compilation> = self
            .compilations
            .iter()
            .filter(|one| one.file.starts_with(&folder) && is_cuda(&one.file))
            .collect();
        let mut kernels = Vec::new();
        for one in files {
            for arch in CARDS {
                let work = Work::start(format!("{} for sm_{arch}", self.name(one)));
                kernels.extend(self.compile(one, &self.root, arch)?.kernels);
                work.done("");
            }
        }
        if kernels.is_empty() {
            let next = "look at kernels/ggml-cuda.cmake and patches/cuda";
            return Err(Error::wrong(
                "no kernel of ours is compiled into the CUDA module",
                next,
            ));
        }
        Ok(kernels)
    }

    /// The kernels of upstream's files that a patch touches.
    fn upstreams(&self, place: &Place) -> Result<Vec<Pair>> {
        let sources: Vec<&str> = self
            .touched
            .iter()
            .map(String::as_str)
            .filter(|file| !file.ends_with(".txt"))
            .collect();
        if let Some(header) = sources.iter().find(|file| !file.ends_with(".cu")) {
            return Err(Error::wrong(
                format!("a patch touches {header}, which other files include"),
                "hook a file that is compiled itself, so that its kernels can be compared",
            ));
        }
        let tree = self.scratch.join("before");
        before::make(&self.root, &native::source(place)?.path, &sources, &tree)?;
        let mut pairs = Vec::new();
        for file in sources {
            let one = self
                .compilations
                .iter()
                .find(|one| one.file == self.root.join(file));
            let one = one.ok_or_else(|| {
                Error::wrong(format!("{file} is not compiled"), "look at patches/cuda")
            })?;
            for arch in CARDS {
                let work = Work::start(format!(
                    "{file} for sm_{arch}, before and after the patches"
                ));
                pairs.push(Pair {
                    file: file.to_owned(),
                    arch,
                    before: self.compile(one, &tree, arch)?,
                    after: self.compile(one, &self.root, arch)?,
                });
                work.done("");
            }
        }
        Ok(pairs)
    }

    fn name<'a>(&self, one: &'a Compilation) -> std::path::Display<'a> {
        one.file
            .strip_prefix(&self.root)
            .unwrap_or(&one.file)
            .display()
    }

    fn compile(&self, one: &Compilation, tree: &Path, arch: u32) -> Result<Cubin> {
        cubin::compile(one, &self.root, tree, arch, &self.scratch.join("one.cubin"))
    }
}

/// Our kernels, one a line, with a column for each card.
fn table(kernels: &[Kernel]) -> String {
    let mut rows: BTreeMap<String, Vec<&Kernel>> = BTreeMap::new();
    let shown = names::shown(kernels.iter().map(|kernel| kernel.symbol.as_str()));
    for kernel in kernels {
        let name = shown.get(&kernel.symbol).unwrap_or(&kernel.symbol);
        rows.entry(name.clone()).or_default().push(kernel);
    }
    let mut text = "| kernel of ours | registers | shared memory, B | spilled and read back, B |\n|---|---|---|---|\n".to_owned();
    for (name, cards) in rows {
        let list = |number: &dyn Fn(&Kernel) -> u32| {
            let numbers: Vec<String> = cards
                .iter()
                .map(|kernel| format!("sm_{} {}", kernel.arch, number(kernel)))
                .collect();
            numbers.join(", ")
        };
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} |",
            list(&|kernel| kernel.registers),
            list(&|kernel| kernel.shared_bytes),
            list(&|kernel| kernel.spill_store_bytes + kernel.spill_load_bytes)
        );
    }
    text
}

/// One line a file and card, and one for each kernel that the patches changed.
fn comparison(pairs: &[Pair]) -> String {
    let head = "\n| upstream's file | card | kernels | most registers, before and after | spilled, B, before and after | changed |\n\
        |---|---|---|---|---|---|\n";
    let mut text = head.to_owned();
    for pair in pairs {
        let most = |cubin: &Cubin| {
            cubin
                .kernels
                .iter()
                .map(|kernel| kernel.registers)
                .max()
                .unwrap_or_default()
        };
        let _ = writeln!(
            text,
            "| `{}` | sm_{} | {} | {}, {} | {}, {} | {} |",
            pair.file,
            pair.arch,
            pair.after.kernels.len(),
            most(&pair.before),
            most(&pair.after),
            spilled(&pair.before),
            spilled(&pair.after),
            changed(pair).len()
        );
    }
    for (pair, symbol) in pairs
        .iter()
        .flat_map(|pair| changed(pair).into_iter().map(move |symbol| (pair, symbol)))
    {
        let of = |cubin: &Cubin| {
            let kernel = cubin.kernels.iter().find(|kernel| kernel.symbol == symbol);
            kernel.map_or_else(|| "not there".to_owned(), Kernel::to_string)
        };
        let _ = writeln!(
            text,
            "\nsm_{} `{symbol}`\nbefore: {}\nafter: {}",
            pair.arch,
            of(&pair.before),
            of(&pair.after)
        );
    }
    text
}

fn spilled(cubin: &Cubin) -> u32 {
    cubin
        .kernels
        .iter()
        .map(|kernel| kernel.spill_store_bytes + kernel.spill_load_bytes)
        .sum()
}

/// The functions whose machine code is not what it was.
fn changed(pair: &Pair) -> Vec<String> {
    let (before, after) = (&pair.before.code, &pair.after.code);
    let names = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)));
    names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}

/// No kernel of ours spills, and no patch makes upstream's spill more.
fn verdict(ours: &[Kernel], pairs: &[Pair]) -> Result<()> {
    if let Some(kernel) = ours.iter().find(|kernel| kernel.spills()) {
        return Err(Error::wrong(
            format!("{} spills on sm_{}: {kernel}", kernel.symbol, kernel.arch),
            "give a thread less to hold, or bound its registers otherwise",
        ));
    }
    match pairs
        .iter()
        .find(|pair| spilled(&pair.after) > spilled(&pair.before))
    {
        Some(pair) => Err(Error::wrong(
            format!(
                "{} spills more on sm_{} than before the patches",
                pair.file, pair.arch
            ),
            "the table above names the kernels",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(symbol: &str, registers: u32, spilled: u32) -> Kernel {
        let report = format!(
            "Compiling entry function '{symbol}' for 'sm_90'\nFunction properties for {symbol}\n\
             0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\nUsed {registers} registers, used 0 barriers\n"
        );
        super::super::ptxas::kernels(&report).remove(0)
    }

    fn cubin(kernels: &[(&str, u32, u32, &[u8])]) -> Cubin {
        Cubin {
            kernels: kernels
                .iter()
                .map(|&(name, registers, spilled, _)| kernel(name, registers, spilled))
                .collect(),
            code: kernels
                .iter()
                .map(|&(name, _, _, code)| (name.to_owned(), code.to_vec()))
                .collect(),
        }
    }

    fn pair(before: Cubin, after: Cubin) -> Pair {
        Pair {
            file: "x.cu".to_owned(),
            arch: 90,
            before,
            after,
        }
    }

    #[test]
    fn the_same_code_is_unchanged_and_one_other_byte_is_named() {
        let same = pair(
            cubin(&[("a", 10, 4, &[1, 2])]),
            cubin(&[("a", 10, 4, &[1, 2])]),
        );
        assert!(changed(&same).is_empty());
        verdict(&[], &[same]).unwrap();
        let other = pair(
            cubin(&[("a", 10, 0, &[1, 2])]),
            cubin(&[("a", 12, 0, &[1, 3]), ("b", 1, 0, &[])]),
        );
        assert_eq!(changed(&other), ["a", "b"]);
        let text = comparison(&[other]);
        for part in [
            "| 10, 12 |",
            "| 2 |",
            "`a`\nbefore: 10 registers",
            "`b`\nbefore: not there",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_new_spill_fails_wherever_it_is() {
        verdict(&[kernel("k", 200, 0)], &[]).unwrap();
        assert!(verdict(&[kernel("k", 255, 8)], &[]).is_err());
        let more = pair(cubin(&[("a", 10, 4, &[1])]), cubin(&[("a", 10, 8, &[1])]));
        assert!(verdict(&[], &[more]).is_err());
    }

    #[test]
    fn a_kernel_of_ours_has_a_line_with_all_cards() {
        let other = Kernel {
            arch: 86,
            registers: 40,
            ..kernel("k", 50, 0)
        };
        let text = table(&[other, kernel("k", 50, 0)]);
        assert!(text.contains("| sm_86 40, sm_90 50 |"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
