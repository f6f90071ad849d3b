//! Programs that building and fetching need. Running a model needs none of them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

/// A program, and where it is.
#[derive(Serialize)]
pub struct Tool {
    pub name: &'static str,
    pub needed_for: &'static str,
    /// Absent: not found.
    pub path: Option<PathBuf>,
    /// First line of what it says of itself.
    pub version: Option<String>,
}

/// Looks for every tool, in the build's own tools folder (`cargo xtask setup` fills it) and on PATH.
pub fn look(tools_folder: Option<&Path>) -> Vec<Tool> {
    let own = |inside: &str| {
        tools_folder
            .map(|folder| folder.join(inside))
            .filter(|path| path.is_file())
    };
    let python = on_path("python3");
    let pip = python
        .clone()
        .filter(|python| version(python, &["-m", "pip", "--version"]).is_some());
    let libclang = own("clang/native/libclang.so").or_else(libclang_from_environment);
    vec![
        tool("python3", "fetch", python, &["--version"]),
        tool("pip", "fetch", pip, &["-m", "pip", "--version"]),
        tool("git", "patches open", on_path("git"), &["--version"]),
        tool("c++", "building", on_path("c++"), &["--version"]),
        tool(
            "cmake",
            "building",
            own("cmake/data/bin/cmake").or_else(|| on_path("cmake")),
            &["--version"],
        ),
        tool(
            "ninja",
            "building",
            own("bin/ninja").or_else(|| on_path("ninja")),
            &["--version"],
        ),
        tool(
            "nvcc",
            "building for CUDA",
            own("cuda/nvidia/cu13/bin/nvcc").or_else(|| on_path("nvcc")),
            &["--version"],
        ),
        Tool {
            name: "libclang",
            needed_for: "building",
            path: libclang,
            version: None,
        },
    ]
}

fn tool(name: &'static str, needed_for: &'static str, path: Option<PathBuf>, ask: &[&str]) -> Tool {
    let version = path.as_deref().and_then(|path| version(path, ask));
    Tool {
        name,
        needed_for,
        path,
        version,
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn libclang_from_environment() -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os("LIBCLANG_PATH")?);
    let path = if path.is_dir() {
        path.join("libclang.so")
    } else {
        path
    };
    path.is_file().then_some(path)
}

fn version(program: &Path, ask: &[&str]) -> Option<String> {
    let answer = Command::new(program)
        .args(ask)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let line = text.lines().next()?.trim();
    (answer.status.success() && !line.is_empty()).then(|| line.to_owned())
}
