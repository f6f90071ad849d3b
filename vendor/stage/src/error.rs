//! Everything that can go wrong between the upstream package and a linked library. Each message says what happened and
//! what to do next.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step did not succeed. The message is complete: it holds what lower layers said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("could not {action} {}: {cause}", path.display())]
    Io {
        /// What was tried, as a verb: `read`, `rename` ..
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },

    /// `vendor/UPSTREAM.toml` cannot be used.
    #[error("{}: {reason}; vendor/UPDATING.md says what belongs in this file", path.display())]
    Upstream {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// An environment variable has a value that cannot be used.
    #[error("the environment variable {name} {reason}")]
    Env {
        /// The variable.
        name: String,
        /// What is wrong, and what to set instead.
        reason: String,
    },

    /// No llama.cpp tree was found and fetching one was not allowed.
    #[error(
        "no llama.cpp tree found (looked at {looked_at}), and fetching is off; run `cargo xtask vendor` once while \
         online, or set ROLLING_KV_LLAMA_DIR to a llama.cpp checkout"
    )]
    SourceMissing {
        /// The places, in the order they were looked at.
        looked_at: String,
    },

    /// The upstream package could not be fetched.
    #[error(
        "could not fetch {package}: {reason}; check the network and that `python3 -m pip --version` works, then run \
         `cargo xtask vendor`, or set ROLLING_KV_LLAMA_DIR to a llama.cpp checkout"
    )]
    Fetch {
        /// Package and version.
        package: String,
        /// What went wrong, with pip's last lines where pip ran.
        reason: String,
    },

    /// The upstream package is not an archive that holds the tree.
    #[error("{}: {reason}; delete the file and run `cargo xtask vendor`", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A tree or file is not the one that was pinned.
    #[error(
        "{} has sha256 {found}, but vendor/UPSTREAM.toml pins {expected}; delete it and run `cargo xtask vendor`, or, \
         when the pin is being changed on purpose, follow vendor/UPDATING.md",
        path.display()
    )]
    Hash {
        /// The tree or file.
        path: PathBuf,
        /// The pinned hash, 64 hex digits.
        expected: String,
        /// The hash that was computed.
        found: String,
    },

    /// A tree holds something that is neither a folder nor a file.
    #[error("{} is neither a file nor a folder; a staged tree holds only those: remove it", path.display())]
    NotAFile {
        /// The offending entry.
        path: PathBuf,
    },

    /// `patches/series` or a file beside it is wrong.
    #[error("{}: {fault}", path.display())]
    Series {
        /// The `series` file, or the patch that it does not name.
        path: PathBuf,
        /// What is wrong.
        fault: crate::series::SeriesFault,
    },

    /// The header of a patch is wrong.
    #[error("{}: {fault}", patch.display())]
    Header {
        /// The patch.
        patch: PathBuf,
        /// What is wrong.
        fault: crate::header::HeaderFault,
    },

    /// The body of a patch is wrong, or does not fit the tree.
    #[error("{}: {fault}", patch.display())]
    Patch {
        /// The patch.
        patch: PathBuf,
        /// What is wrong.
        fault: Box<crate::patch::PatchFault>,
    },

    /// A hook marker is missing, unlisted or not unique.
    #[error("{}: {fault}", patch.display())]
    Hook {
        /// The patch.
        patch: PathBuf,
        /// What is wrong.
        fault: crate::hooks::HookFault,
    },

    /// Something already lies where a file of ours is to be laid.
    #[error("{} is in the way of kernels/: {reason}", path.display())]
    Collision {
        /// What is in the way.
        path: PathBuf,
        /// Whose it is, and what to do.
        reason: &'static str,
    },

    /// A tool that the build needs was not found.
    #[error(
        "{tool} was not found ({searched}); `cargo xtask setup` installs cmake, ninja and libclang under target/, {advice}"
    )]
    Tool {
        /// What is missing.
        tool: &'static str,
        /// Where it was looked for.
        searched: String,
        /// What else the user can do.
        advice: &'static str,
    },

    /// The CUDA compiler was not found.
    #[error(
        "the CUDA compiler nvcc was not found ({searched}); run `cargo xtask cuda setup`, which installs the toolkit under \
         target/ without root (0.5 GB to fetch), or install the CUDA toolkit and name its nvcc in CUDACXX"
    )]
    Cuda {
        /// Where it was looked for.
        searched: String,
    },

    /// The CUDA toolkit lacks a part that the module needs.
    #[error(
        "the CUDA toolkit in {} has no {part}; run `cargo xtask cuda setup`, which puts a whole one under target/, and \
         leave CUDACXX unset, or add that part",
        root.display()
    )]
    CudaPart {
        /// The toolkit.
        root: PathBuf,
        /// What is missing.
        part: &'static str,
    },

    /// A list of CUDA architectures cannot be read.
    #[error(
        "{text:?} is no list of CUDA architectures from 75 on; write compute capabilities without their point, such as \
         86,89,90, into --arch or ROLLING_KV_CUDA_ARCH"
    )]
    CudaArchs {
        /// What was given.
        text: String,
    },

    /// A program ran and failed.
    #[error("{program} failed ({status}) while {doing}; the whole log is {}; its last lines:\n{tail}", log.display())]
    Command {
        /// The program.
        program: String,
        /// Its exit status, in words.
        status: String,
        /// What it was run for.
        doing: String,
        /// Where its output is.
        log: PathBuf,
        /// The end of its output.
        tail: String,
    },

    /// A program could not be started.
    #[error("could not start {program} while {doing}: {cause}; install it or put it on the PATH")]
    Start {
        /// The program.
        program: String,
        /// What it was needed for.
        doing: String,
        /// What the system said.
        cause: std::io::Error,
    },

    /// A library that was built cannot be read back.
    #[error("{}: {reason}; delete the folder {} and build again", library.display(), library.parent().unwrap_or(library).display())]
    Library {
        /// The library.
        library: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// bindgen refused the headers.
    #[error("could not make Rust declarations from {}: {reason}", header.display())]
    Bind {
        /// The header.
        header: PathBuf,
        /// What bindgen or clang said.
        reason: String,
    },

    /// A git command of `patches open` or `refresh` failed.
    #[error("git {command} failed in {}: {message}", dir.display())]
    Git {
        /// The arguments.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// What git said.
        message: String,
    },

    /// The work tree of `patches open` is not in a state to be used.
    #[error("{}: {reason}", dir.display())]
    Checkout {
        /// The work tree.
        dir: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// This platform is not supported.
    #[error("{what} is not supported; README.md lists what is")]
    Unsupported {
        /// The platform or combination.
        what: String,
    },
}

/// Adds the path and the verb to an I/O error.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|cause| Error::Io {
            action,
            path: path.to_owned(),
            cause,
        })
    }
}

/// What a build script's `main` returns: prints the message of an [`Error`] for people, not its `Debug` form.
pub struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
