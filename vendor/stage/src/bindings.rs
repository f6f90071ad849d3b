//! Rust declarations of the C interface.

use crate::error::{Error, IoContext, Result};
use crate::tools::Toolchain;
use crate::{command, fsx};
use bindgen::EnumVariation;
use std::path::{Path, PathBuf};

/// The one header that declares everything Rust may call, relative to a staged tree.
pub const HEADER: &str = "rkv/include/rkv-bindgen.h";

/// Folders of a staged tree that hold headers.
const INCLUDE: [&str; 3] = ["include", "ggml/include", "rkv/include"];

/// Writes the declarations of the staged tree `root` to `out`, with tests of every struct's layout.
///
/// Sets `LIBCLANG_PATH` in this process, which is how bindgen is told: call it where no other thread reads the environment
/// by way of C, as in a build script.
///
/// # Errors
/// [`Error::Bind`] with clang's message.
pub fn generate(tools: &Toolchain, root: &Path, out: &Path) -> Result<()> {
    let header = root.join(HEADER);
    let refused = |reason: String| Error::Bind {
        header: header.clone(),
        reason,
    };
    if !header.is_file() {
        return Err(refused("the file is missing".to_owned()));
    }
    // SAFETY: the environment is unsound to change only while another thread reads it without Rust's lock; the documentation
    // above makes that the caller's duty.
    unsafe { std::env::set_var("LIBCLANG_PATH", &tools.libclang) };
    let deprecated = deprecated(root)?;
    let mut builder = bindgen::builder()
        .header(header.to_string_lossy())
        .allowlist_function("(llama|ggml|gguf|rkv)_.*")
        .allowlist_type("(llama|ggml|gguf|rkv)_.*")
        .allowlist_var("(LLAMA|GGML|GGUF|RKV)_.*")
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(true)
        .derive_default(true)
        .generate_comments(false)
        .detect_include_paths(false)
        .merge_extern_blocks(true)
        .wrap_unsafe_ops(true)
        .formatter(bindgen::Formatter::Prettyplease)
        .clang_args(INCLUDE.map(|dir| format!("-I{}", root.join(dir).display())))
        .clang_args(builtin_headers(tools));
    for name in deprecated {
        builder = builder.blocklist_function(name);
    }
    let bindings = builder
        .generate()
        .map_err(|error| refused(error.to_string()))?;
    fsx::write_atomic(out, bindings.to_string().as_bytes())
}

/// libclang from a wheel has no `stddef.h`; the compiler's own serve as well.
fn builtin_headers(tools: &Toolchain) -> Vec<String> {
    let dir =
        command::output(tools.cc.command().arg("-print-file-name=include")).map(PathBuf::from);
    match dir.filter(|dir| dir.is_dir()) {
        Some(dir) => vec!["-isystem".to_owned(), dir.display().to_string()],
        None => Vec::new(),
    }
}

/// The functions that upstream has marked as going away. They are left out, so that nobody begins to use one.
fn deprecated(root: &Path) -> Result<Vec<String>> {
    let path = root.join("include/llama.h");
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    Ok(deprecated_in(&text))
}

/// The name before the first `(` after each `DEPRECATED(`, where that is a function and not the macro's definition.
fn deprecated_in(text: &str) -> Vec<String> {
    let calls = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let after = calls.filter_map(|line| line.split_once("DEPRECATED(").map(|(_, rest)| rest));
    let named = after.filter_map(|rest| {
        rest.split_once('(')?
            .0
            .split_whitespace()
            .last()
            .map(str::to_owned)
    });
    named.filter(|name| name.starts_with("llama_")).collect()
}

#[cfg(test)]
mod tests {
    use super::deprecated_in;

    #[test]
    fn deprecated_functions_are_found() {
        let text = "#    define DEPRECATED(func, hint) func\n    DEPRECATED(LLAMA_API int32_t llama_n_head     (const x * m), \"y\");\n\
            LLAMA_API DEPRECATED(size_t llama_get_state_size(\n    LLAMA_API void llama_keep(void);\n";
        assert_eq!(
            deprecated_in(text),
            ["llama_n_head", "llama_get_state_size"]
        );
    }
}
