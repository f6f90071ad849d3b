//! Finds cmake, ninja, libclang and the compilers.

use crate::env::{Env, is_program};
use crate::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where tools are looked for.
#[derive(Debug, Clone)]
pub struct Search {
    /// Variables that name a tool, and `PATH`.
    pub env: Env,
    /// Folders that `cargo xtask setup` fills, the first one first.
    pub tool_dirs: Vec<PathBuf>,
    /// Folders in which a system keeps libclang.
    pub library_dirs: Vec<PathBuf>,
}

/// The tools of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// cmake.
    pub cmake: PathBuf,
    /// ninja, where there is one.
    pub ninja: Option<PathBuf>,
    /// The C compiler.
    pub cc: Compiler,
    /// The C++ compiler.
    pub cxx: Compiler,
    /// libclang, the file.
    pub libclang: PathBuf,
}

/// A compiler, perhaps behind a wrapper and with options, as in `CC="ccache gcc"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The program.
    pub program: PathBuf,
    /// What comes before all other arguments.
    pub args: Vec<String>,
}

impl Compiler {
    /// A command without arguments of the caller's yet.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

impl Search {
    /// The usual places: the environment, `tools` in the target folders, the system.
    #[must_use]
    pub fn new(env: Env, repo: &Path, target: &Path) -> Self {
        let mut tool_dirs = vec![repo.join("target/tools"), target.join("tools")];
        tool_dirs.dedup();
        Self {
            env,
            tool_dirs,
            library_dirs: library_dirs(),
        }
    }

    pub(crate) fn tool(&self, variable: &str, in_wheel: &[&str], program: &str) -> Option<PathBuf> {
        if let Some(named) = self.env.path(variable) {
            return if is_program(&named) {
                Some(named)
            } else {
                self.env.which(&named.to_string_lossy())
            };
        }
        let installed = self
            .tool_dirs
            .iter()
            .flat_map(|dir| in_wheel.iter().map(|file| dir.join(file)));
        installed
            .into_iter()
            .find(|file| is_program(file))
            .or_else(|| self.env.which(program))
    }

    pub(crate) fn searched(&self, variable: &str) -> String {
        let dirs: Vec<String> = self
            .tool_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        match self.env.get(variable) {
            Some(value) => format!("{variable} names {}", value.display()),
            None => format!(
                "{variable} is not set; looked in {} and on the PATH",
                dirs.join(", ")
            ),
        }
    }

    fn compiler(&self, variable: &str, programs: &[&str]) -> Option<Compiler> {
        let alone = |program| Compiler {
            program,
            args: Vec::new(),
        };
        let Some(named) = self.env.path(variable) else {
            return programs
                .iter()
                .find_map(|program| self.env.which(program))
                .map(alone);
        };
        if is_program(&named) {
            return Some(alone(named));
        }
        let text = named.to_str()?;
        let mut words = text.split_whitespace().map(str::to_owned);
        let first = words.next()?;
        let program = if is_program(Path::new(&first)) {
            PathBuf::from(&first)
        } else {
            self.env.which(&first)?
        };
        Some(Compiler {
            program,
            args: words.collect(),
        })
    }

    fn libclang(&self) -> Option<PathBuf> {
        if let Some(named) = self.env.path("LIBCLANG_PATH") {
            return if named.is_file() {
                Some(named)
            } else {
                libclang_in(&named)
            };
        }
        let dirs = self
            .tool_dirs
            .iter()
            .map(|dir| dir.join("clang/native"))
            .chain(self.library_dirs.iter().cloned());
        dirs.into_iter().find_map(|dir| libclang_in(&dir))
    }
}

impl Toolchain {
    /// Finds every tool.
    ///
    /// # Errors
    /// [`Error::Tool`] for the first one that is missing.
    pub fn find(search: &Search) -> Result<Self> {
        let missing = |tool, searched, advice| Error::Tool {
            tool,
            searched,
            advice,
        };
        let compiler = |variable: &str, programs: &[&str]| {
            search.compiler(variable, programs).ok_or_else(|| {
                let searched = match search.env.get(variable) {
                    Some(value) => format!("{variable} names {}", value.display()),
                    None => format!("looked for {} on the PATH", programs.join(", ")),
                };
                let tool = if variable == "CC" { "a C compiler" } else { "a C++ compiler" };
                missing(tool, searched, "but a compiler comes from the system: install gcc and g++ (package build-essential) or clang")
            })
        };
        Ok(Self {
            cc: compiler("CC", &["cc", "gcc", "clang"])?,
            cxx: compiler("CXX", &["c++", "g++", "clang++"])?,
            cmake: search
                .tool("CMAKE", &["cmake/data/bin/cmake"], "cmake")
                .ok_or_else(|| {
                    missing(
                        "cmake",
                        search.searched("CMAKE"),
                        "or install the package cmake (3.14 or newer)",
                    )
                })?,
            ninja: search.tool("NINJA", &["ninja/data/bin/ninja", "bin/ninja"], "ninja"),
            libclang: search.libclang().ok_or_else(|| {
                missing(
                    "libclang",
                    search.searched("LIBCLANG_PATH"),
                    "or install the package libclang-dev",
                )
            })?,
        })
    }
}

/// A libclang in `dir`: the plain name first, else the highest version by name.
fn libclang_in(dir: &Path) -> Option<PathBuf> {
    for plain in ["libclang.so", "libclang.dylib"] {
        if dir.join(plain).is_file() {
            return Some(dir.join(plain));
        }
    }
    let names = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|item| item.file_name().into_string().ok());
    let versioned = |name: &String| {
        name.strip_prefix("libclang")
            .is_some_and(|rest| rest.starts_with(['-', '.']) && rest.contains(".so"))
            && !name.starts_with("libclang-cpp")
    };
    names.filter(versioned).max().map(|name| dir.join(name))
}

/// Where systems keep libclang.
fn library_dirs() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Ok(items) = std::fs::read_dir("/usr/lib") {
        let names = items.flatten().map(|item| item.path());
        let mut llvm: Vec<PathBuf> = names
            .filter(|path| path.to_string_lossy().contains("/llvm"))
            .collect();
        llvm.sort();
        dirs.extend(llvm.into_iter().rev().map(|path| path.join("lib")));
    }
    let fixed = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/opt/homebrew/opt/llvm/lib",
    ];
    dirs.extend(fixed.map(PathBuf::from));
    dirs
}
