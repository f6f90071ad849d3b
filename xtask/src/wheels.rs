//! Python wheels installed into a folder of our own, without root and without touching the person's Python.

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::process::Run;
use crate::progress::Work;

/// A pinned package of the Python index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    /// Its name there.
    pub package: &'static str,
    /// The version that this repository is tested with.
    pub version: &'static str,
}

/// What builds the native libraries.
pub const BUILD_TOOLS: [Wheel; 3] = [
    Wheel {
        package: "cmake",
        version: "4.4.5",
    },
    Wheel {
        package: "ninja",
        version: "1.13.2",
    },
    Wheel {
        package: "libclang",
        version: "18.1.1",
    },
];

/// What upstream's server tests import.
pub const SERVER_TESTS: [Wheel; 5] = [
    Wheel {
        package: "pytest",
        version: "8.3.5",
    },
    Wheel {
        package: "pytest-xdist",
        version: "3.8.0",
    },
    Wheel {
        package: "requests",
        version: "2.32.5",
    },
    Wheel {
        package: "filelock",
        version: "3.19.1",
    },
    Wheel {
        package: "openai",
        version: "2.14.0",
    },
];

/// The longest that an installation may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs `wheels` into `folder`, replacing what lies there under the same names.
pub fn install(wheels: &[Wheel], folder: &Path) -> Result<()> {
    let names: Vec<String> = wheels
        .iter()
        .map(|wheel| format!("{} {}", wheel.package, wheel.version))
        .collect();
    let work = Work::start(format!("installing {}", names.join(", ")));
    Run::new("python3")
        .args(["-m", "pip", "--disable-pip-version-check", "install", "--upgrade", "--only-binary", ":all:", "--target"])
        .arg(folder)
        .args(wheels.iter().map(|wheel| format!("{}=={}", wheel.package, wheel.version)))
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .limit(LIMIT)
        .next(format!(
            "this needs python3 with pip (Debian: apt install python3-pip) and its package index over the network. \
             Run `cargo xtask setup` again when both are there, or install {} yourself",
            names.join(", ")
        ))
        .watched(|_, line| work.note(line.trim()))?
        .success()?;
    work.done("");
    Ok(())
}

/// Checks that `python3 -m pip` runs at all.
pub fn pip_works() -> Result<()> {
    let next = "install python3 and pip (Debian: apt install python3 python3-pip; Fedora: dnf install python3 python3-pip), then run this again";
    Run::new("python3")
        .args(["-m", "pip", "--version"])
        .next(next)
        .quietly()?
        .success()
        .map(drop)
}
