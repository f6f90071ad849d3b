//! Link stubs: what a program is linked with, so that it finds the real libraries by their absolute path.
//!
//! A linker copies the name that a shared library gives itself into the program. The real libraries call themselves
//! `libllama.so.0`, so that a folder of them can be copied; a program that needs such a name also needs a search path, and a
//! package cannot give one to the programs of its dependents. So the program is linked with a stub that has the same
//! symbols and, as its name, the absolute path of the real library.

use crate::error::{Error, IoContext, Result};
use crate::tools::Toolchain;
use crate::{command, fsx};
use object::{Object, ObjectSymbol, SymbolKind};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What the symbols begin with that Rust code may reference.
const PREFIXES: [&str; 4] = ["llama_", "ggml_", "gguf_", "rkv_"];

/// Makes `dir/lib<name>.so` for the library `bin/lib<name>.so`, unless it is there and right.
///
/// # Errors
/// [`Error::Library`] where the library is missing or odd, or what the compiler says.
pub fn make(tools: &Toolchain, bin: &Path, dir: &Path, name: &str, log: &Path) -> Result<()> {
    let real = real_file(bin, name)?;
    let assembly = assembly(&real)?;
    let (source, stub) = (
        dir.join(format!("{name}.s")),
        dir.join(format!("lib{name}.so")),
    );
    let changed = fsx::write_if_changed(&source, assembly.as_bytes())?;
    if stub.is_file() && !changed {
        return Ok(());
    }
    let fresh = dir.join(format!("lib{name}.so.tmp"));
    let mut cc = tools.cc.command();
    cc.args(["-shared", "-nostdlib", "-x", "assembler"])
        .arg(&source)
        .arg("-o")
        .arg(&fresh);
    cc.args(["-Xlinker", "-soname", "-Xlinker"]).arg(&real);
    command::run(&mut cc, "making a link stub", log, |_| {}).inspect_err(|_| {
        let _ = std::fs::remove_file(&source);
    })?;
    std::fs::rename(&fresh, &stub).at("rename", &fresh)
}

/// The absolute path that programs will ask for: the link with the major version, which outlives a bump of the minor one.
fn real_file(bin: &Path, name: &str) -> Result<PathBuf> {
    let plain = bin.join(format!("lib{name}.so"));
    let soname = read(&plain, |file| match file {
        object::File::Elf64(elf) => soname(elf),
        _ => None,
    })?;
    let bin = std::path::absolute(bin).at("look at", bin)?;
    Ok(bin.join(soname.unwrap_or_else(|| format!("lib{name}.so"))))
}

fn soname<'a, R: object::ReadRef<'a>>(
    elf: &object::read::elf::ElfFile64<'a, object::Endianness, R>,
) -> Option<String> {
    use object::elf::{DT_SONAME, SHT_DYNAMIC};
    use object::read::elf::{Dyn, SectionHeader};
    let (endian, data) = (elf.endian(), elf.data());
    let sections = elf.elf_section_table();
    let section = sections
        .iter()
        .find(|section| section.sh_type(endian) == SHT_DYNAMIC)?;
    let (entries, strings) = section.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let entry = entries
        .iter()
        .find(|entry| entry.tag(endian) == DT_SONAME)?;
    Some(String::from_utf8_lossy(entry.string(endian, strings).ok()?).into_owned())
}

/// An assembly file that defines every symbol of ours and upstream's that `library` exports.
fn assembly(library: &Path) -> Result<String> {
    let mut symbols = read(library, |file| {
        let exported = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.is_global());
        let named = exported.filter_map(|symbol| {
            Some((symbol.name().ok()?.to_owned(), symbol.kind(), symbol.size()))
        });
        named
            .filter(|(name, ..)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            .collect::<Vec<_>>()
    })?;
    if symbols.is_empty() {
        return Err(Error::Library {
            library: library.to_owned(),
            reason: "it exports nothing".to_owned(),
        });
    }
    symbols.sort_by(|a, b| a.0.cmp(&b.0));
    let mut text = format!("# Symbols of {}\n.text\n", library.display());
    for (name, _, _) in symbols
        .iter()
        .filter(|(_, kind, _)| *kind != SymbolKind::Data)
    {
        let _ = writeln!(text, ".globl {name}\n.type {name}, %function\n{name}:");
    }
    text.push_str(".data\n");
    for (name, _, size) in symbols
        .iter()
        .filter(|(_, kind, _)| *kind == SymbolKind::Data)
    {
        let _ = writeln!(
            text,
            ".balign 32\n.globl {name}\n.type {name}, %object\n.size {name}, {size}\n{name}:\n.zero {size}"
        );
    }
    text.push_str(".section .note.GNU-stack,\"\",%progbits\n");
    Ok(text)
}

fn read<T>(library: &Path, look: impl FnOnce(&object::File<'_>) -> T) -> Result<T> {
    let bytes = std::fs::read(library).at("read", library)?;
    let file = object::File::parse(bytes.as_slice());
    let file = file.map_err(|error| Error::Library {
        library: library.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(look(&file))
}
