//! What a library offers and what it asks of others.

use std::collections::BTreeSet;
use std::path::Path;

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, Sym};

use crate::error::{Error, Result};

/// A symbol that a library does not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// The version that is asked for, such as `GLIBC_2.34`; empty where none is.
    pub version: String,
}

/// The dynamic symbols of a library.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    /// Those that it defines.
    pub defined: BTreeSet<String>,
    /// Those that it cannot do without.
    pub wanted: Vec<Wanted>,
}

/// Reads the dynamic symbols of `file`.
pub fn read(file: &Path) -> Result<Symbols> {
    let data = std::fs::read(file).map_err(Error::file("read", file))?;
    symbols(&data).map_err(|error| {
        Error::wrong(
            format!("{} cannot be read as a library: {error}", file.display()),
            "delete it and build it again",
        )
    })
}

fn symbols(data: &[u8]) -> object::Result<Symbols> {
    let file = ElfFile64::<object::Endianness>::parse(data)?;
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, data)?;
    let table = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, data)?;
    let mut found = Symbols::default();
    for (index, symbol) in table.enumerate() {
        let name = String::from_utf8_lossy(symbol.name(endian, table.strings())?).into_owned();
        if name.is_empty() || symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        if !symbol.is_undefined(endian) {
            found.defined.insert(name);
        } else if symbol.st_bind() == elf::STB_GLOBAL {
            let version = match &versions {
                Some(versions) => versions.version(versions.version_index(endian, index).into())?,
                None => None,
            };
            let version =
                version.map(|version| String::from_utf8_lossy(version.name()).into_owned());
            found.wanted.push(Wanted {
                name,
                version: version.unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Run;

    #[test]
    fn what_a_library_defines_and_what_it_asks_of_others_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let source = "#include <stdlib.h>\nvoid other(void);\n__attribute__((weak)) void maybe(void);\n\
            void ours(void) { other(); abort(); if (maybe) { maybe(); } }\nstatic void hidden(void) { }\n\
            void also(void) { hidden(); }\n";
        std::fs::write(dir.path().join("a.c"), source).unwrap();
        let cc = Run::new("cc").args(["-shared", "-fPIC", "-o", "liba.so", "a.c"]);
        cc.dir(dir.path()).quietly().unwrap().success().unwrap();
        let found = read(&dir.path().join("liba.so")).unwrap();
        assert!(found.defined.contains("ours") && found.defined.contains("also"));
        assert!(!found.defined.contains("hidden"));
        let wanted = |name: &str| found.wanted.iter().find(|one| one.name == name);
        assert_eq!(wanted("other").unwrap().version, "");
        assert!(wanted("abort").unwrap().version.starts_with("GLIBC_"));
        assert_eq!(wanted("maybe"), None, "a weak symbol may be missing");
    }
}
