//! Runs cmake and its build tool. Nothing else does.

use crate::error::{IoContext, Result};
use crate::event::{Event, Reporter};
use crate::tools::Toolchain;
use crate::{command, fsx};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cmake build of a staged tree.
#[derive(Debug, Clone)]
pub struct Native {
    /// The staged tree.
    pub source: PathBuf,
    /// cmake's build folder.
    pub build: PathBuf,
    /// Log of the last run.
    pub log: PathBuf,
    /// What is told to cmake, each as `NAME=VALUE`.
    pub options: Vec<String>,
    /// What the staged tree was made of: cmake lists its sources again when this changes.
    pub tree: String,
    /// The CUDA compiler, where there is something for it.
    pub nvcc: Option<PathBuf>,
    /// Most compilers at once; `None` leaves it to the build tool.
    pub jobs: Option<u32>,
}

/// Holds what the build folder was configured with.
const CONFIGURED: &str = "rkv-configured.txt";

impl Native {
    /// Writes the build files, unless they were written with the same options, tools and tree.
    ///
    /// # Errors
    /// [`crate::Error::Command`] with cmake's last lines.
    pub fn configure(&self, tools: &Toolchain, reporter: &Reporter) -> Result<()> {
        let marker = self.build.join(CONFIGURED);
        let fixed = self.fixed_part(tools);
        let wanted = format!("{fixed}{}\n{}\n", self.tree, self.options.join("\n"));
        let configured = std::fs::read_to_string(&marker).unwrap_or_default();
        if configured == wanted && self.build.join("CMakeCache.txt").is_file() {
            return Ok(());
        }
        if !configured.starts_with(&fixed) {
            fsx::remove_dir(&self.build)?;
        }
        reporter.send(Event::Configuring);
        std::fs::create_dir_all(&self.build).at("make", &self.build)?;
        let mut cmake = self.command(&tools.cmake);
        cmake.arg("-S").arg(&self.source).arg("-B").arg(&self.build);
        match &tools.ninja {
            Some(ninja) => cmake
                .args(["-G", "Ninja"])
                .arg(joined("-DCMAKE_MAKE_PROGRAM=", ninja)),
            None => cmake.args(["-G", "Unix Makefiles"]),
        };
        if cfg!(target_os = "macos") {
            cmake
                .arg("-DCMAKE_MACOSX_RPATH=OFF")
                .arg(joined("-DCMAKE_INSTALL_NAME_DIR=", &self.build.join("bin")));
        }
        if let Some(nvcc) = &self.nvcc {
            cmake.arg(joined("-DCMAKE_CUDA_COMPILER=", nvcc));
        }
        for option in &self.options {
            cmake.arg(format!("-D{option}"));
        }
        command::run(&mut cmake, "configuring llama.cpp", &self.log, |_| {})?;
        fsx::write_atomic(&marker, wanted.as_bytes())
    }

    /// What cannot change in a build folder once it is there. The compilers are those that cmake finds by itself, by the same
    /// rules: `CC` and `CXX`, else the usual names on the PATH.
    fn fixed_part(&self, tools: &Toolchain) -> String {
        let generator = if tools.ninja.is_some() {
            "Ninja"
        } else {
            "Unix Makefiles"
        };
        let nvcc = self
            .nvcc
            .as_ref()
            .map(|nvcc| format!("{}\n", nvcc.display()));
        format!(
            "{}\n{}\n{generator}\n{}\n{}\n{}",
            self.source.display(),
            self.build.display(),
            tools.cc,
            tools.cxx,
            nvcc.unwrap_or_default()
        )
    }

    /// Builds `targets`.
    ///
    /// # Errors
    /// [`crate::Error::Command`] with the compiler's last lines.
    pub fn build(&self, tools: &Toolchain, targets: &[&str], reporter: &Reporter) -> Result<()> {
        let mut cmake = self.command(&tools.cmake);
        cmake
            .arg("--build")
            .arg(&self.build)
            .arg("--target")
            .args(targets);
        match self.jobs {
            Some(jobs) => cmake.arg("--parallel").arg(jobs.to_string()),
            None if tools.ninja.is_none() => cmake.arg("--parallel").arg(
                std::thread::available_parallelism()
                    .map_or(1, usize::from)
                    .to_string(),
            ),
            None => &mut cmake,
        };
        let doing = format!("building {}", targets.join(", "));
        command::run(&mut cmake, &doing, &self.log, |line| {
            if let Some(event) = progress(line) {
                reporter.send(event);
            }
        })
    }

    /// A program whose git, if it asks for one, does not see the repository around the build folder.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(
            "GIT_CEILING_DIRECTORIES",
            self.source.parent().unwrap_or(&self.source),
        );
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "NINJA_STATUS",
            "CMAKE_GENERATOR",
            "MAKEFLAGS",
        ] {
            command.env_remove(name);
        }
        command
    }
}

fn joined(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(path);
    text
}

/// ninja's `[3/17] Building ..`, or make's `[ 40%] Building ..`.
fn progress(line: &str) -> Option<Event> {
    let (count, what) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = match count.trim().strip_suffix('%') {
        Some(percent) => (percent.parse().ok()?, 100),
        None => {
            let (done, total) = count.split_once('/')?;
            (done.parse().ok()?, total.parse().ok()?)
        }
    };
    Some(Event::Building {
        done,
        total,
        what: what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_both_tools_is_read() {
        let what = "Building a.cpp".to_owned();
        assert_eq!(
            progress("[3/17] Building a.cpp"),
            Some(Event::Building {
                done: 3,
                total: 17,
                what: what.clone()
            })
        );
        assert_eq!(
            progress("[ 40%] Building a.cpp"),
            Some(Event::Building {
                done: 40,
                total: 100,
                what
            })
        );
        assert_eq!(progress("[x] y"), None);
        assert_eq!(progress("ninja: no work to do."), None);
    }
}
