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
        "the model cannot do what it is asked with a resident cache ({found}; {least} is the least), so its answers prove nothing: give an easier task, or another model"
    )]
    TooWeak {
        /// The score of each task.
        found: String,
        /// The least that proves something.
        least: f64,
    },
    /// A local layer would see all of it.
    #[error(
        "local layers of {cells} tokens see the whole text of {length}: give fewer, or a longer text"
    )]
    NothingLocal {
        /// Tokens that a local layer sees.
        cells: u32,
        /// Tokens of the text.
        length: u32,
    },
    /// No such question can be made.
    #[error(transparent)]
    Question(#[from] crate::ruler::FitError),
    /// The results cannot be kept.
    #[error("cannot keep results in {}: {source}", path.display())]
    Store {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file of results is of another run.
    #[error("{} holds results of other options: give another file, or remove it", path.display())]
    OtherOptions {
        /// The file.
        path: std::path::PathBuf,
    },
    /// The model or the context refused.
    #[error(transparent)]
    Model(#[from] rolling_kv::Error),
}
