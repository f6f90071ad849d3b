use std::path::PathBuf;

use super::{Failure, human};

/// Why a model could not be loaded or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such file.
    #[error("there is no model file {}: check the path, or get the small test model with `rolling-kv fetch smollm2`", path.display())]
    NotFound {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The path names a folder.
    #[error("{} is a folder: name the .gguf file in it (the first one of a split model)", path.display())]
    IsDirectory {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The file cannot be opened or read.
    #[error("the model file {} cannot be read: {source}", path.display())]
    NotReadable {
        /// The path that was asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path holds a NUL byte or is not UTF-8.
    #[error("the path {} cannot be handed to llama.cpp: give it a name that is valid UTF-8 without NUL", path.display())]
    BadPath {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The file is something else, or damaged.
    #[error("{} is not a usable GGUF file: {reason}; convert or download the model again", path.display())]
    NotGguf {
        /// The path that was asked for.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file ends before its last tensor.
    #[error(
        "{} is cut short: its tensors need {} and it has {} ({needs} and {has} bytes); download it again",
        path.display(), human(*needs), human(*has)
    )]
    Truncated {
        /// The path that was asked for.
        path: PathBuf,
        /// Bytes that the header promises.
        needs: u64,
        /// Bytes that are there.
        has: u64,
    },
    /// The progress callback asked to stop.
    #[error("loading was cancelled by its progress callback")]
    Cancelled,
    /// A callback panicked; loading was stopped.
    #[error("loading was stopped because its callback panicked: {message}")]
    CallbackPanicked {
        /// The panic's message.
        message: String,
    },
    /// A parameter is out of its range.
    #[error("model parameter {option}: {reason}")]
    Parameter {
        /// The parameter.
        option: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A metadata entry of a model made in memory cannot be used.
    #[error("metadata {key:?}: {reason}")]
    Metadata {
        /// The entry's key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tensors of a model made in memory do not fit into memory.
    #[error("the model's tensors need more than the {} that are free: make it smaller", human(*available_bytes))]
    NotEnoughMemory {
        /// Free host memory when loading began, in bytes.
        available_bytes: u64,
    },
    /// llama.cpp refused.
    #[error("llama.cpp could not load the model: {0}")]
    Failed(#[from] Failure),
}
