//! Names of kernels for people.

use std::collections::BTreeMap;
use std::process::Command;

/// How namespaces begin that nvcc makes: of unnamed ones, and for functions of one file. They differ from run to run.
const MADE: [&str; 2] = ["_GLOBAL__N_", "_INTERNAL_"];

/// What each symbol is called in the source; the symbol itself where no `c++filt` (of binutils, as the linker) is there.
pub fn shown<'a>(symbols: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let symbols: Vec<&str> = symbols.collect();
    let said = Command::new("c++filt")
        .arg("--no-params")
        .args(&symbols)
        .output();
    let text = said
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let names: Vec<&str> = text.lines().collect();
    let is_whole = names.len() == symbols.len();
    let named = symbols.iter().enumerate().map(|(at, symbol)| {
        let name = if is_whole {
            plain(names[at])
        } else {
            (*symbol).to_owned()
        };
        ((*symbol).to_owned(), name)
    });
    named.collect()
}

/// A demangled name without its result and without the namespaces that nvcc makes.
fn plain(name: &str) -> String {
    let name = name.trim().trim_start_matches("void ");
    let mut text = name.replace("(anonymous namespace)::", "");
    for made in MADE {
        while let Some(at) = text.find(made) {
            let Some(len) = text[at..].find("::") else {
                break;
            };
            text.replace_range(at..at + len + 2, "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_add_to_a_name_is_left_out() {
        assert_eq!(
            plain("void (anonymous namespace)::attn<4, 1>"),
            "attn<4, 1>"
        );
        let made = "_GLOBAL__N__2c59_12_a_cu_5a49";
        assert_eq!(plain(&format!("{made}::rows")), "rows");
        assert_eq!(
            plain(&format!(
                "void {made}::put<rkv::block, &_INTERNAL_5a_77::one>"
            )),
            "put<rkv::block, &one>"
        );
    }

    #[test]
    fn every_symbol_has_a_name() {
        let names = shown(["_Z1kPf", "no_mangling"].into_iter());
        assert_eq!(names.len(), 2);
        assert!(["k", "_Z1kPf"].contains(&names["_Z1kPf"].as_str()));
        assert_eq!(names["no_mangling"], "no_mangling");
    }
}
