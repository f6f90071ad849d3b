//! `cargo xtask setup`: cmake, ninja and libclang, from the system where they work, else as wheels under the target folder.

use std::path::Path;

use rolling_kv_stage::env::Env;
use rolling_kv_stage::tools::{Search, Toolchain};

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::wheels::{self, BUILD_TOOLS, Wheel};

/// The oldest cmake that upstream's files are written for.
const CMAKE_LEAST: (u32, u32) = (3, 14);

/// Makes sure that every tool is there and runs; what is missing is installed.
pub fn ensure(place: &Place) -> Result<Toolchain> {
    let search = Search::new(Env::from_process(), &place.root, &place.target);
    let mut installed: Vec<&str> = Vec::new();
    loop {
        let lacking = match Toolchain::find(&search) {
            Ok(tools) => match broken(&tools) {
                None => return Ok(tools),
                Some(package) => package,
            },
            Err(rolling_kv_stage::Error::Tool { tool, .. }) if wheel(tool).is_some() => tool,
            Err(other) => return Err(other.into()),
        };
        if installed.contains(&lacking) {
            return Err(still_missing(lacking, &place.tools()));
        }
        let Some(wheel) = wheel(lacking) else {
            return Err(still_missing(lacking, &place.tools()));
        };
        wheels::install(&[wheel], &place.tools())?;
        installed.push(lacking);
    }
}

/// Runs `setup` and prints what is used.
pub fn run(place: &Place) -> Result<()> {
    wheels::pip_works()?;
    let git =
        "install git (Debian: apt install git); `cargo xtask patches open` and the tests need it";
    Run::new("git")
        .arg("--version")
        .next(git)
        .quietly()?
        .success()?;
    let tools = ensure(place)?;
    println!("cmake     {}", tools.cmake.display());
    println!(
        "ninja     {}",
        tools.ninja.as_deref().unwrap_or(Path::new("-")).display()
    );
    println!("libclang  {}", tools.libclang.display());
    println!("cc        {}", tools.cc);
    println!("c++       {}", tools.cxx);
    Ok(())
}

/// The package of the first tool that does not run or is too old.
fn broken(tools: &Toolchain) -> Option<&'static str> {
    if version(&tools.cmake).is_none_or(|found| found < CMAKE_LEAST) {
        return Some("cmake");
    }
    if tools.ninja.as_deref().and_then(version).is_none() {
        return Some("ninja");
    }
    // An interrupted installation can leave an empty file.
    let whole = tools.libclang.metadata().is_ok_and(|file| file.len() > 0);
    if whole { None } else { Some("libclang") }
}

fn wheel(package: &str) -> Option<Wheel> {
    BUILD_TOOLS
        .into_iter()
        .find(|wheel| wheel.package == package)
}

fn version(program: &Path) -> Option<(u32, u32)> {
    let ended = Run::new(program)
        .arg("--version")
        .quietly()
        .ok()?
        .success()
        .ok()?;
    first_version(&ended.text)
}

fn still_missing(package: &str, folder: &Path) -> Error {
    Error::wrong(
        format!(
            "{package} was installed into {} but does not run",
            folder.display()
        ),
        format!(
            "delete that folder and run `cargo xtask setup` again, or install {package} with the system's package manager"
        ),
    )
}

/// Major and minor number of the first word that looks like a version.
fn first_version(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(
            first_version("cmake version 3.25.1\n\nCMake suite"),
            Some((3, 25))
        );
        assert_eq!(
            first_version("1.13.2.git.kitware.jobserver-1\n"),
            Some((1, 13))
        );
        assert_eq!(first_version("command not found"), None);
    }

    #[test]
    fn every_tool_that_stage_misses_has_a_wheel() {
        for tool in ["cmake", "ninja", "libclang"] {
            assert!(wheel(tool).is_some());
        }
        assert!(wheel("a C++ compiler").is_none());
    }

    #[test]
    fn a_program_that_does_not_run_has_no_version() {
        assert_eq!(version(Path::new("/dev/null")), None);
    }
}
