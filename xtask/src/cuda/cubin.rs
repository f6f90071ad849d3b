//! One file's machine code for one card, compiled as the module's build compiles it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection};

use super::ptxas::{self, Kernel};
use crate::error::{Error, Result};
use crate::kernels::Compilation;
use crate::process::Run;

/// How the options begin that say for which cards.
const CARDS: &str = "\"--generate-code=";

/// What a kernel's code section is called, before the kernel's name.
const CODE: &str = ".text.";

/// The kernels of a file, and their machine code.
#[derive(Debug, Default)]
pub struct Cubin {
    /// What the assembler says of each, sorted by name.
    pub kernels: Vec<Kernel>,
    /// The code of each function by its name.
    pub code: BTreeMap<String, Vec<u8>>,
}

/// Compiles `one`, which was recorded for the tree at `root`, in the tree at `tree` for a card. Paths below the tree are relative,
/// so that two trees give the same code where they hold the same text.
pub fn compile(
    one: &Compilation,
    root: &Path,
    tree: &Path,
    arch: u32,
    out: &Path,
) -> Result<Cubin> {
    let command = rewritten(&one.command, root, arch, out).ok_or_else(|| {
        Error::wrong(
            format!("the recorded command for {} is not understood: {}", one.file.display(), one.command),
            "move the target folder to a place without blanks in its path, or read xtask/src/cuda/cubin.rs",
        )
    })?;
    let ended = Run::new("sh")
        .args(["-c", &command])
        .dir(tree)
        .next("run the command yourself to see more")
        .quietly()?
        .success()?;
    let mut kernels = ptxas::kernels(&ended.text);
    kernels.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    let data = fs::read(out).map_err(Error::file("read", out))?;
    let code = code(&data).map_err(|error| {
        Error::wrong(
            format!("{} cannot be read: {error}", out.display()),
            "delete it and run this again",
        )
    })?;
    if let Some(kernel) = kernels
        .iter()
        .find(|kernel| !code.contains_key(&kernel.symbol))
    {
        let what = format!("{} holds no code of {}", out.display(), kernel.symbol);
        return Err(Error::wrong(
            what,
            "another toolkit may keep it elsewhere: read xtask/src/cuda/cubin.rs",
        ));
    }
    Ok(Cubin { kernels, code })
}

/// `command` for one card, with relative paths, machine code as its result and a report of registers.
fn rewritten(command: &str, root: &Path, arch: u32, out: &Path) -> Option<String> {
    let relative = command.replace(&format!("{}/", root.display()), "");
    let (mut rest, _) = relative.rsplit_once(" -o ")?;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once(CARDS) {
        text.push_str(before);
        rest = after.split_once('"')?.1;
    }
    let (options, file) = rest.rsplit_once(" -c ")?;
    if text.is_empty() || file.starts_with(['/', '"']) || file.contains('\\') {
        return None;
    }
    text.push_str(options);
    let out = out.display();
    Some(format!(
        "{text} --generate-code=arch=compute_{arch},code=sm_{arch} -Xptxas -v -cubin {file} -o '{out}'"
    ))
}

fn code(data: &[u8]) -> object::Result<BTreeMap<String, Vec<u8>>> {
    let file = object::File::parse(data)?;
    let mut found = BTreeMap::new();
    for section in file.sections() {
        if let Some(name) = section.name()?.strip_prefix(CODE) {
            found.insert(name.to_owned(), section.data()?.to_vec());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = "/t/nvcc -DX=\\\"a,b\\\" -I/s/ggml/src/../include -isystem /t/include -O3 \
        \"--generate-code=arch=compute_86,code=[sm_86]\" \"--generate-code=arch=compute_90,code=[compute_90,sm_90]\" \
        -Xcompiler=-fPIC -x cu -c /s/ggml/src/ggml-cuda/a.cu -o ggml/a.cu.o";

    #[test]
    fn a_recorded_command_is_made_into_one_for_a_card() {
        let command = rewritten(RECORDED, Path::new("/s"), 90, Path::new("/o/a.cubin")).unwrap();
        assert_eq!(
            command,
            "/t/nvcc -DX=\\\"a,b\\\" -Iggml/src/../include -isystem /t/include -O3   -Xcompiler=-fPIC -x cu \
             --generate-code=arch=compute_90,code=sm_90 -Xptxas -v -cubin ggml/src/ggml-cuda/a.cu -o '/o/a.cubin'"
        );
    }

    #[test]
    fn a_command_that_would_compile_another_tree_is_refused() {
        let out = Path::new("/o/a.cubin");
        assert_eq!(rewritten(RECORDED, Path::new("/another"), 90, out), None);
        let quoted = RECORDED.replace("/s/ggml/src/ggml-cuda/a.cu", "\"/s b/a.cu\"");
        assert_eq!(rewritten(&quoted, Path::new("/s b"), 90, out), None);
        assert_eq!(
            rewritten("c++ -c a.cpp -o a.o", Path::new("/s"), 90, out),
            None
        );
    }
}
