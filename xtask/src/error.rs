//! What can go wrong in a chore. Every message says what happened and what to do next.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a chore.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a chore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Staging, patching or building the native libraries failed; its message carries the next step.
    #[error(transparent)]
    Stage(#[from] rolling_kv_stage::Error),

    /// A file could not be read, written, copied or removed.
    #[error("cannot {verb} {path}: {source}\nNext: {next}")]
    File {
        /// What was tried, as a verb.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do about it.
        next: &'static str,
    },

    /// A program could not be started.
    #[error("cannot start `{program}`: {source}\nNext: {next}")]
    Start {
        /// The program.
        program: String,
        /// Why it failed.
        source: io::Error,
        /// What to do about it.
        next: String,
    },

    /// A program ran and reported a failure.
    #[error("`{command}` ended with {ended}.\n{tail}\nNext: {next}")]
    Ended {
        /// The command line.
        command: String,
        /// Exit code or signal, in words.
        ended: String,
        /// Its last lines.
        tail: String,
        /// What to do about it.
        next: String,
    },

    /// A program was stopped because it took too long.
    #[error("`{command}` did not end within {seconds} s and was stopped.\n{tail}\nNext: {next}")]
    TimedOut {
        /// The command line.
        command: String,
        /// The limit.
        seconds: u64,
        /// Its last lines.
        tail: String,
        /// What to do about it.
        next: String,
    },

    /// Something was not as it must be.
    #[error("{what}\nNext: {next}")]
    Wrong {
        /// What was found.
        what: String,
        /// What to do about it.
        next: String,
    },
}

impl Error {
    /// Something is not as it must be; `next` says what to do.
    pub fn wrong(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Wrong {
            what: what.into(),
            next: next.into(),
        }
    }

    /// Turns an [`io::Error`] into one that names the file and the verb.
    pub fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            verb,
            path,
            source,
            next: "check that the folder exists, is writable and the disk is not full, then run the command again",
        }
    }
}
