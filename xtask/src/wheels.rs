//! Python wheels installed into a folder of our own, without root and without touching the person's Python.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::process::Run;
use crate::progress::Work;

/// A pinned package of the Python index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    /// Its name there.
    pub package: &'static str,
    /// The version that this repository is tested with.
    pub version: &'static str,
    /// The SHA-256 hashes of its files, one a platform. Without any, the index is believed.
    pub sha256: &'static [&'static str],
}

impl Wheel {
    /// The line of a requirements file that pins it.
    fn requirement(&self) -> String {
        let hashes: String = self
            .sha256
            .iter()
            .map(|hash| format!(" --hash=sha256:{hash}"))
            .collect();
        format!("{}=={}{hashes}\n", self.package, self.version)
    }
}

/// What builds the native libraries.
pub const BUILD_TOOLS: [Wheel; 3] = [
    Wheel {
        package: "cmake",
        version: "4.4.5",
        sha256: &[],
    },
    Wheel {
        package: "ninja",
        version: "1.13.2",
        sha256: &[],
    },
    Wheel {
        package: "libclang",
        version: "18.1.1",
        sha256: &[],
    },
];

/// What upstream's server tests import.
pub const SERVER_TESTS: [Wheel; 5] = [
    Wheel {
        package: "pytest",
        version: "8.3.5",
        sha256: &[],
    },
    Wheel {
        package: "pytest-xdist",
        version: "3.8.0",
        sha256: &[],
    },
    Wheel {
        package: "requests",
        version: "2.32.5",
        sha256: &[],
    },
    Wheel {
        package: "filelock",
        version: "3.19.1",
        sha256: &[],
    },
    Wheel {
        package: "openai",
        version: "2.14.0",
        sha256: &[],
    },
];

/// A browser: QtWebEngine, with what it needs. 260 MB to fetch, 670 MB on the disk.
pub const BROWSER: [Wheel; 4] = [
    Wheel {
        package: "PySide6_WebEngine",
        version: "6.12.0.140",
        sha256: &[
            "c041c9921d7c91c9e51a2c027f434d05c3c59baa2c8f17b71dc8194e77791f06",
            "66a842ccb7f06fa7e357f6d4d63bc2739e3cbc1f93583f314e38c43024fe5f74",
        ],
    },
    Wheel {
        package: "PySide6_Addons",
        version: "6.12.0",
        sha256: &[
            "4ab38c0017f0453671a9313d3a53ca1c0e378924f54b07e596bcea94a9642391",
            "48cd0b639c06c9f79685f340ccae4319614b66d6efcdf06c2ce3836790d8c46e",
        ],
    },
    Wheel {
        package: "PySide6_Essentials",
        version: "6.12.0",
        sha256: &[
            "16f4b5e41daf49235ae048458243da9efe5f3d8040f9cc5aa454ce69893d3bd9",
            "08c5841063fc1df69b7fa1ee405f539e66576a83fc48004be3e2c5e35ccbfa69",
        ],
    },
    Wheel {
        package: "shiboken6",
        version: "6.12.0",
        sha256: &[
            "3bde565bb0890044b5c7f63808adddede5abc241e9395a2bfed61919884d6240",
            "ff72a72b3277b418902d562b987b33a6f6818bed9fe40a49d634d09bc67f620e",
        ],
    },
];

/// What compiles CUDA kernels: 105 MB to fetch, 271 MB on the disk.
pub const CUDA_COMPILER: [Wheel; 5] = [
    Wheel {
        package: "nvidia-cuda-nvcc",
        version: "13.0.88",
        sha256: &[
            "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
            "c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f",
        ],
    },
    Wheel {
        package: "nvidia-nvvm",
        version: "13.0.88",
        sha256: &[
            "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
            "c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1",
        ],
    },
    Wheel {
        package: "nvidia-cuda-crt",
        version: "13.0.88",
        sha256: &[
            "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
            "ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003",
        ],
    },
    Wheel {
        package: "nvidia-cuda-runtime",
        version: "13.0.96",
        sha256: &[
            "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
        ],
    },
    Wheel {
        package: "nvidia-cuda-cccl",
        version: "13.0.85",
        sha256: &[
            "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
            "6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c",
        ],
    },
];

/// What the CUDA module is linked with beside that: 421 MB to fetch, 568 MB on the disk.
pub const CUBLAS: Wheel = Wheel {
    package: "nvidia-cublas",
    version: "13.0.2.14",
    sha256: &[
        "0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c",
        "17165c296de689662b96e0ef4f21dfbff3092ff00d0e3e59470f5acb08c0f87d",
    ],
};

/// The longest that an installation may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs `wheels` into `folder`, replacing what lies there under the same names.
pub fn install(wheels: &[Wheel], folder: &Path) -> Result<()> {
    let names: Vec<String> = wheels
        .iter()
        .map(|wheel| format!("{} {}", wheel.package, wheel.version))
        .collect();
    let lines: String = wheels.iter().map(Wheel::requirement).collect();
    let requirements = folder.join("requirements.txt");
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    fs::write(&requirements, lines).map_err(Error::file("write", &requirements))?;
    let work = Work::start(format!("installing {}", names.join(", ")));
    Run::new("python3")
        .args(["-m", "pip", "--disable-pip-version-check", "install", "--upgrade", "--only-binary", ":all:", "--target"])
        .arg(folder)
        .arg("--requirement")
        .arg(&requirements)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .limit(LIMIT)
        .next(format!(
            "this needs python3 with pip (Debian: apt install python3-pip) and its package index over the network. \
             Run the command again when both are there, or install {} yourself",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_is_pinned_with_all_its_hashes_or_none() {
        let wheel = |sha256| Wheel {
            package: "p",
            version: "1",
            sha256,
        };
        assert_eq!(wheel(&[]).requirement(), "p==1\n");
        assert_eq!(
            wheel(&["a", "b"]).requirement(),
            "p==1 --hash=sha256:a --hash=sha256:b\n"
        );
    }

    #[test]
    fn large_wheels_are_all_hashed() {
        let whole = |hash: &&str| hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit());
        for wheel in BROWSER.into_iter().chain(CUDA_COMPILER).chain([CUBLAS]) {
            assert!(
                !wheel.sha256.is_empty() && wheel.sha256.iter().all(whole),
                "{}",
                wheel.package
            );
        }
    }
}
