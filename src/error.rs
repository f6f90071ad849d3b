//! What can go wrong, one enum per kind of work, and [`Error`] over all of them.
//!
//! Every message says what happened and what to do next. No function of this crate panics, aborts the process or lets
//! a C++ exception through because of what it was given.

mod context;
mod cuda;
mod decode;
mod load;
mod local;
mod locality;
mod plan;
mod rolling;
mod sampler;
mod sequence;
mod state;
mod vocab;

use std::fmt;
use std::path::PathBuf;

pub use context::ContextError;
pub use cuda::CudaError;
pub use decode::{DecodeError, OutputError};
pub use load::LoadError;
pub use local::LocalLayersError;
pub use locality::LocalityError;
pub use plan::PlanError;
pub use rolling::RollingKvError;
pub use sampler::SamplerError;
pub use sequence::SequenceError;
pub use state::StateError;
pub use vocab::{ChatError, VocabError};

/// A result whose error is [`Error`] unless another one is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of this crate. Each operation answers its own, smaller enum; `?` turns it into this one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From [`Backend::init`](crate::Backend::init).
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// From loading or making a model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// From reading a file of local layers.
    #[error(transparent)]
    LocalLayers(#[from] LocalLayersError),
    /// From making a context.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// From running a batch.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// From reading logits or embeddings.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// From editing sequences.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// From saving or restoring state.
    #[error(transparent)]
    State(#[from] StateError),
    /// From text to tokens and back.
    #[error(transparent)]
    Vocab(#[from] VocabError),
    /// From laying out a conversation.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// From sampling.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// From measuring where attention looks.
    #[error(transparent)]
    Locality(#[from] LocalityError),
    /// From planning.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// From asking the CUDA driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Why the library could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// No module that can compute on this CPU lies in the folder.
    #[error(
        "no CPU backend (libggml-cpu*.so) could be loaded from {}: build the crate with cargo, or set \
         ROLLING_KV_LIB_DIR to the folder that holds libllama.so and its modules", searched.display()
    )]
    NoCpuBackend {
        /// The folder that was searched.
        searched: PathBuf,
    },
    /// The library that was found is not the one this crate was built for.
    #[error(
        "libllama answers interface version {found}, this crate needs {expected}: rebuild both from the same checkout"
    )]
    WrongLibrary {
        /// The version this crate was built for.
        expected: u32,
        /// The version the library answered.
        found: u32,
    },
    /// The library has structs of other sizes than this crate: a program that was not rebuilt after the library was.
    #[error(
        "libllama was built from other headers than this crate: rebuild both from the same checkout"
    )]
    OtherHeaders,
    /// The folder's name holds a NUL byte or is not UTF-8.
    #[error("the folder {} cannot be handed to llama.cpp: give it a name that is valid UTF-8", path.display())]
    BadPath {
        /// The folder.
        path: PathBuf,
    },
    /// The simulated device could not be added: its specification cannot be read, another one is in force, or its module is
    /// missing.
    #[error("{reason}")]
    Simulated {
        /// What is wrong, and what is possible.
        reason: String,
    },
    /// llama.cpp failed.
    #[error("the backends could not be loaded: {0}")]
    Failed(#[from] Failure),
}

/// What kind of failure llama.cpp reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A C++ exception, caught at the border.
    Exception,
    /// An assertion; the object that was worked on refuses further work.
    Assertion,
    /// It answered no; the reason is what it logged.
    Refused,
    /// It cannot do this for this kind of model.
    Unsupported,
    /// It could not allocate.
    NoMemory,
}

/// A failure inside llama.cpp, with what it said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    text: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What llama.cpp said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Bytes in the unit that a person reads: `1.5 GiB`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}
