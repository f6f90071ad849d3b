use super::Failure;

/// Why text could not be turned into tokens or back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabError {
    /// The model has no vocabulary.
    #[error("this model has no vocabulary: bring your own tokens")]
    NoVocabulary,
    /// A token that the vocabulary does not have.
    #[error("there is no token {token}: the vocabulary has 0..{n_vocab}")]
    TokenOutOfRange {
        /// The token.
        token: i32,
        /// Size of the vocabulary.
        n_vocab: u32,
    },
    /// The text is longer than llama.cpp can take at once.
    #[error(
        "{bytes} bytes are too many at once (at most {max_bytes}): cut the text at a paragraph and tokenise the parts"
    )]
    TextTooLong {
        /// Bytes that were given.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// One run of spaces, or of anything but spaces, is longer than a tokenizer can match.
    #[error(
        "a run of {bytes} bytes with or without spaces is too long (at most {max_bytes}): cut the text inside it"
    )]
    RunTooLong {
        /// Length of the run.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// llama.cpp failed.
    #[error("llama.cpp could not convert the text: {0}")]
    Failed(#[from] Failure),
}

/// Why a conversation could not be laid out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The model brings no template.
    #[error(
        "the model brings no chat template: name one of ChatTemplate::builtin_names(), such as \"chatml\""
    )]
    NoTemplate,
    /// The template is not one that llama.cpp can lay out.
    #[error(
        "the chat template is not one that llama.cpp knows: name one of ChatTemplate::builtin_names() that resembles it"
    )]
    UnsupportedTemplate,
    /// A NUL byte cannot be handed over.
    #[error("{what} of message {index} holds a NUL byte: remove it")]
    Nul {
        /// `role` or `content`.
        what: &'static str,
        /// Index of the message.
        index: usize,
    },
    /// The result would be longer than llama.cpp can count.
    #[error(
        "the conversation holds {bytes} bytes, which is too many (at most {max_bytes}): drop its oldest messages"
    )]
    TooLong {
        /// Bytes in all messages.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// llama.cpp failed.
    #[error("llama.cpp could not lay out the conversation: {0}")]
    Failed(#[from] Failure),
}
