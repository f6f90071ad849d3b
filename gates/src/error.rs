/// Why a gate could not run. That is neither a pass nor a failure of what it tests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The text is too short for the context.
    #[error(
        "the text has {tokens} tokens and the gate needs {needed}: give a longer text, or a smaller --ctx"
    )]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens that are needed.
        needed: usize,
    },
    /// The context leaves no room for the positions that are compared.
    #[error("--ctx {n_ctx} is too small: at least {least} tokens are needed")]
    ContextTooSmall {
        /// What was asked for.
        n_ctx: u32,
        /// The least that is possible.
        least: u32,
    },
    /// The model was trained for less.
    #[error(
        "{what} takes {asked} tokens of context, and the model was trained for {trained}\n  next: give a smaller {option}, or another model"
    )]
    OverContext {
        /// What is to be read.
        what: String,
        /// Tokens that it takes.
        asked: u32,
        /// Tokens that the model was trained for.
        trained: u32,
        /// The option that says so.
        option: &'static str,
    },
    /// The model's logits are no numbers, or the same whatever it reads, so that equal ones prove nothing.
    #[error(
        "the model's logits {found} in an ordinary resident run, so comparing them proves nothing\n  next: give another model; `rolling-kv run -m MODEL` shows what this one says"
    )]
    Mute {
        /// What they are.
        found: &'static str,
    },
    /// Nothing would lie in the tail, so the gate would test nothing.
    #[error(
        "a window of {window_cells} cells holds the whole context of {n_ctx}: nothing would spill; give a smaller window"
    )]
    NothingSpills {
        /// Cells of the window.
        window_cells: u32,
        /// Cells of the context.
        n_ctx: u32,
    },
    /// The model keeps no K and V, so that nothing of it can spill.
    #[error(
        "this model keeps no K and V of what it read, so nothing can lie in host memory: give a model with attention and a cache"
    )]
    NoCache,
    /// The model does not continue a text.
    #[error(
        "this model does not continue a text by itself, so there are no logits to compare: give a model with a decoder alone"
    )]
    NoDecoder,
    /// The tiled attention never ran, or never read a tail: the gate would prove nothing.
    #[error(
        "the spilled run read no tile from a tail, so it proves nothing; this is an error of the build"
    )]
    NotEngaged,
    /// The host was to attend to the tail and never did.
    #[error(
        "tail engine {engine} was asked for, and the host attended to no tile, so nothing is proved of it\n  next: give a device that computes with memory of its own, such as --device sim, or leave out --tail-engine"
    )]
    EngineIdle {
        /// What was asked for.
        engine: &'static str,
    },
    /// The byte to flip lies in no tail.
    #[error(
        "the last cell of the prompt lies in no tail, so no byte of a tail was changed: give a smaller window"
    )]
    NotInjected,
    /// Keys of this type are not read back.
    #[error("keys stored as {0} are not compared: use f32, f16 or q8_0")]
    KeyType(rolling_kv::KvType),
    /// No key of the model can be moved to another position.
    #[error(
        "no key of this model can be moved to another position: it turns none, or its tokens have several positions; give a model with RoPE"
    )]
    NoRope,
    /// The model cannot do any of the tasks, so that nothing could be lost.
    #[error(
        "the model cannot do what it is asked with a resident cache ({found}; {least} is the least), so its answers prove nothing\n  next: give an easier task, or another model"
    )]
    TooWeak {
        /// The score of each task.
        found: String,
        /// The least that is asked of one.
        least: f64,
    },
    /// A local layer would see all of it.
    #[error(
        "local layers of {cells} tokens see the whole text of {length}\n  next: give a smaller --local-cells, or a longer --length"
    )]
    NothingLocal {
        /// Tokens that a local layer sees.
        cells: u32,
        /// Tokens of the text.
        length: u32,
    },
    /// The spec cannot be used.
    #[error(transparent)]
    Spec(#[from] crate::spec_error::SpecError),
    /// No such question can be made.
    #[error(transparent)]
    Question(#[from] crate::ruler::FitError),
    /// The results cannot be kept.
    #[error(
        "cannot keep results in {}: {source}\n  next: give a folder that can be written with --results, or leave it out",
        path.display()
    )]
    Store {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The folder of results is of another run.
    #[error(
        "{} holds results of other options, of another model or of another text\n  next: give another folder, or remove this one",
        path.display()
    )]
    OtherOptions {
        /// The file that says so.
        path: std::path::PathBuf,
    },
    /// Another process writes results there.
    #[error("another run keeps its results in {}\n  next: wait for it, or give another folder", folder.display())]
    InUse {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// A part that runs in a process of its own did not.
    #[error(
        "the part of {what} could not be measured: {why}\n  next: ask for {what} alone and see"
    )]
    Apart {
        /// The part.
        what: String,
        /// Why.
        why: String,
    },
    /// The picture cannot be drawn.
    #[error("the picture could not be drawn: {0}")]
    Draw(String),
    /// The device could not be measured.
    #[error(
        "the device could not be measured: {0}\n  next: give it more memory, or another device"
    )]
    Calibrate(rolling_kv::Failure),
    /// The model or the context refused.
    #[error(transparent)]
    Model(#[from] rolling_kv::Error),
}

/// What a model or a context refuses, whatever it was asked.
macro_rules! from_model {
    ($($error:ident),*) => {
        $(impl From<rolling_kv::$error> for GateError {
            fn from(error: rolling_kv::$error) -> Self {
                Self::Model(error.into())
            }
        })*
    };
}

from_model!(
    ContextError,
    DecodeError,
    LocalityError,
    OutputError,
    PlanError,
    SequenceError,
    StateError,
    VocabError
);
