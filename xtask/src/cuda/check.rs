//! What must hold of a CUDA module that was built, found by reading it: no GPU and no driver is needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection};
use rolling_kv_stage::cuda::{Archs, Module};

use super::fatbin::{self, Container};
use super::symbols::{self, Symbols};
use crate::elf;
use crate::error::{Error, Result};

/// What the loader of ggml asks for, and what tells where the module comes from.
const EXPORTED: [&str; 3] = ["ggml_backend_init", "ggml_backend_score", STAMP];

/// The symbol whose text says what the module was built from.
const STAMP: &str = "rkv_cuda_stamp";

/// How the names of the libraries begin that the module may need.
const LIBRARIES: [&str; 11] = [
    "libggml-base.so",
    "libcudart.so",
    "libcublas.so",
    "libcuda.so",
    "libstdc++.so",
    "libgcc_s.so",
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "ld-linux",
];

/// How the versions of symbols begin that the system's libraries define.
const SYSTEM: [&str; 4] = ["GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_"];

/// How the names of the driver's symbols begin; without a driver there is no library to look into.
const DRIVER: &str = "cu";

/// Checks the module, and prints what was found.
pub fn module(module: &Module) -> Result<()> {
    let data = fs::read(&module.file).map_err(Error::file("read", &module.file))?;
    let symbols = symbols::read(&module.file)?;
    exports(&symbols)?;
    println!("exports   {}", EXPORTED.join(", "));

    let needed = elf::needed(&module.file)?;
    libraries(&needed)?;
    println!("needs     {}", needed.join(", "));
    let mut others = vec![symbols::read(&module.base())?.defined];
    for library in module.toolkit.runtime() {
        others.push(symbols::read(&library)?.defined);
    }
    let known: BTreeSet<String> = others.into_iter().flatten().collect();
    undefined(
        &symbols,
        &known,
        needed.iter().any(|name| name.starts_with("libcuda.so")),
    )?;
    println!(
        "symbols   {} asked of those, all found",
        symbols.wanted.len()
    );

    let containers = containers(&data).ok_or_else(|| wrong("its code for cards cannot be read"))?;
    cards(&containers, &module.archs)?;
    println!(
        "cards     {} in each of {} pieces, and code for later cards",
        module.archs,
        containers.len()
    );

    stamp(&data, &module.stamp)?;
    println!("stamp     {}", module.stamp);
    Ok(())
}

fn wrong(what: &str) -> Error {
    Error::wrong(
        format!("the CUDA module is not as it must be: {what}"),
        "look at patches/cuda and kernels/ggml-cuda.cmake; delete its build folder to build all of it anew",
    )
}

fn exports(symbols: &Symbols) -> Result<()> {
    match EXPORTED
        .iter()
        .find(|&&name| !symbols.defined.contains(name))
    {
        Some(name) => Err(wrong(&format!("it does not export {name}"))),
        None => Ok(()),
    }
}

fn libraries(needed: &[String]) -> Result<()> {
    let is_known = |name: &String| LIBRARIES.iter().any(|known| name.starts_with(known));
    match needed.iter().find(|name| !is_known(name)) {
        Some(name) => Err(wrong(&format!("it needs {name}"))),
        None => Ok(()),
    }
}

/// Every symbol that is asked for is one of ggml-base, of the toolkit, of the system, or, where it is linked with, of the driver.
fn undefined(symbols: &Symbols, known: &BTreeSet<String>, driver: bool) -> Result<()> {
    let missing = symbols.wanted.iter().find(|wanted| {
        let system = SYSTEM
            .iter()
            .any(|prefix| wanted.version.starts_with(prefix));
        let of_driver = driver && wanted.name.starts_with(DRIVER);
        !(system || of_driver || known.contains(&wanted.name))
    });
    match missing {
        Some(wanted) => Err(wrong(&format!(
            "nothing that it needs defines {}",
            wanted.name
        ))),
        None => Ok(()),
    }
}

/// Each piece has machine code for every card of the list and no other, and portable code for the highest. The piece that nvcc adds
/// when it links has no portable code.
fn cards(containers: &[Container], archs: &Archs) -> Result<()> {
    let machine: BTreeSet<u32> = archs.list().iter().copied().collect();
    let portable: BTreeSet<u32> = archs.list().last().copied().into_iter().collect();
    let wanted = Container { machine, portable };
    let others: Vec<&Container> = containers
        .iter()
        .filter(|found| **found != wanted)
        .collect();
    if others.len() == containers.len() {
        return Err(wrong("it holds no code for these cards"));
    }
    let of_linker =
        |found: &Container| found.machine == wanted.machine && found.portable.is_empty();
    let bad = others
        .iter()
        .enumerate()
        .find(|(at, found)| *at > 0 || !of_linker(found));
    match bad {
        Some((_, found)) => Err(wrong(&format!(
            "a piece of it has machine code for {:?} and portable code for {:?}, where {archs} was asked for",
            found.machine, found.portable
        ))),
        None => Ok(()),
    }
}

fn containers(data: &[u8]) -> Option<Vec<Container>> {
    let file = object::File::parse(data).ok()?;
    let section = file.section_by_name(fatbin::SECTION)?;
    fatbin::read(section.data().ok()?)
}

/// The text that says what the module was built from is the one that was staged.
fn stamp(data: &[u8], text: &str) -> Result<()> {
    let constants = object::File::parse(data).ok().and_then(|file| {
        let section = file.section_by_name(".rodata")?;
        section.data().ok().map(<[u8]>::to_vec)
    });
    let whole = format!("{text}\0");
    if constants
        .unwrap_or_default()
        .windows(whole.len())
        .any(|window| window == whole.as_bytes())
    {
        return Ok(());
    }
    Err(wrong(&format!(
        "it does not say that it was built from {text}"
    )))
}

/// The size of a file, in bytes.
pub fn bytes(file: &Path) -> Result<u64> {
    fs::metadata(file)
        .map(|data| data.len())
        .map_err(Error::file("look at", file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::symbols::Wanted;

    fn symbols(defined: &[&str], wanted: &[(&str, &str)]) -> Symbols {
        let wanted = wanted.iter().map(|&(name, version)| Wanted {
            name: name.to_owned(),
            version: version.to_owned(),
        });
        Symbols {
            defined: defined.iter().map(|&name| name.to_owned()).collect(),
            wanted: wanted.collect(),
        }
    }

    #[test]
    fn a_module_without_one_of_its_exports_is_named_wrong() {
        exports(&symbols(&EXPORTED, &[])).unwrap();
        for missing in EXPORTED {
            let rest: Vec<&str> = EXPORTED
                .into_iter()
                .filter(|&name| name != missing)
                .collect();
            let error = exports(&symbols(&rest, &[])).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn a_library_that_is_not_expected_is_named() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        libraries(&names(&[
            "libggml-base.so.0",
            "libcudart.so.13",
            "libc.so.6",
        ]))
        .unwrap();
        let error = libraries(&names(&["libc.so.6", "libnccl.so.2"])).unwrap_err();
        assert!(error.to_string().contains("libnccl.so.2"));
    }

    #[test]
    fn a_symbol_that_nobody_defines_is_named() {
        let known = BTreeSet::from(["ggml_log_internal".to_owned(), "cudaMalloc".to_owned()]);
        let good = [
            ("ggml_log_internal", ""),
            ("cudaMalloc", "libcudart.so.13"),
            ("memcpy", "GLIBC_2.14"),
            ("_Znwm", "GLIBCXX_3.4"),
        ];
        undefined(&symbols(&[], &good), &known, false).unwrap();
        let driver = symbols(&[], &[("cuMemMap", "")]);
        undefined(&driver, &known, true).unwrap();
        assert!(undefined(&driver, &known, false).is_err());
        let lost = symbols(&[], &[("rkv_lost", "")]);
        let error = undefined(&lost, &known, true).unwrap_err().to_string();
        assert!(error.contains("rkv_lost"), "{error}");
    }

    #[test]
    fn one_piece_without_a_card_is_enough_to_be_wrong() {
        let archs = Archs::parse("86,90").unwrap();
        let piece = |machine: &[u32], portable: &[u32]| Container {
            machine: machine.iter().copied().collect(),
            portable: portable.iter().copied().collect(),
        };
        let good = piece(&[86, 90], &[90]);
        let linkers = piece(&[86, 90], &[]);
        cards(&[good.clone(), good.clone()], &archs).unwrap();
        cards(&[good.clone(), linkers.clone()], &archs).unwrap();
        assert!(cards(&[good.clone(), linkers.clone(), linkers.clone()], &archs).is_err());
        assert!(cards(std::slice::from_ref(&linkers), &archs).is_err());
        for bad in [
            piece(&[90], &[90]),
            piece(&[86, 90], &[86]),
            piece(&[80, 86, 90], &[90]),
        ] {
            assert!(cards(&[good.clone(), bad], &archs).is_err());
        }
        assert!(cards(&[], &archs).is_err());
    }

    #[test]
    fn a_module_of_another_stamp_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let source = "const char rkv_cuda_stamp[] = \"llama.cpp abc, kernels 12\";\n";
        fs::write(dir.path().join("a.c"), source).unwrap();
        let cc = crate::process::Run::new("cc").args(["-shared", "-fPIC", "-o", "a.so", "a.c"]);
        cc.dir(dir.path()).quietly().unwrap().success().unwrap();
        let data = fs::read(dir.path().join("a.so")).unwrap();
        stamp(&data, "llama.cpp abc, kernels 12").unwrap();
        for other in ["llama.cpp abc, kernels 1", "llama.cpp abd, kernels 12"] {
            let error = stamp(&data, other).unwrap_err().to_string();
            assert!(error.contains(other), "{error}");
        }
        assert_eq!(containers(&data), None);
    }
}
