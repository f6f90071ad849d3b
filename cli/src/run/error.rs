//! Why a run did not go well.

use std::io;

use rolling_kv::{
    BackendError, ChatError, ContextError, DecodeError, LoadError, LocalLayersError, OutputError,
    SamplerError, VocabError,
};

use super::prompt::PromptError;
use crate::exit;
use crate::models::ModelPathError;

/// Why a run did not go well. The message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    ModelPath(#[from] ModelPathError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(
        "{0}\n  next: give what `rolling-kv gate budget --json FILE` wrote, or leave out --local-file"
    )]
    LocalFile(#[from] LocalLayersError),
    #[error(transparent)]
    Vocab(#[from] VocabError),
    #[error(
        "{0}\n  next: leave out --chat and write the whole prompt yourself, with the marks that the model was trained on"
    )]
    Chat(#[from] ChatError),

    #[error(
        "this model has an encoder, and `rolling-kv run` works with decoders only\n  next: use another model"
    )]
    Encoder,

    #[error("this model has no decoder, so it generates no text\n  next: use another model")]
    NoDecoder,

    #[error(
        "the prompt gives no tokens, and this model starts no text by itself\n  next: give a longer prompt"
    )]
    NoTokens,

    #[error(
        "the prompt has {tokens} tokens, and a context of {cells} has room for {room} of them{}\n  \
         next: give {} or shorten the prompt",
        if *chosen { ", which is what the model was trained for" } else { "" },
        if *chosen { "a larger --ctx (the text may get worse),".into() } else { format!("--ctx {} or more,", tokens + super::setup::ROOM) }
    )]
    PromptTooLong {
        tokens: usize,
        cells: usize,
        room: usize,
        /// The size was chosen by this program, not by the user.
        chosen: bool,
    },

    #[error("the generation failed: {0}")]
    Decode(#[from] DecodeError),
    #[error("the generation failed: {0}")]
    Output(#[from] OutputError),
    #[error("choosing a token failed: {0}")]
    Sampler(#[from] SamplerError),

    #[error("cannot write to standard output: {0}\n  next: check the free space where it goes to")]
    Write(io::Error),
}

impl RunError {
    /// The exit code of the program: whether the work was started at all.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Decode(_) | Self::Output(_) | Self::Sampler(_) | Self::Write(_) => exit::FAILURE,
            _ => exit::COULD_NOT_RUN,
        }
    }
}
