//! Text to tokens and back.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::fmt;

use crate::error::VocabError;
use crate::model::Model;
use crate::status::sized;
use crate::{ffi, text_limits};

/// A token: a number that stands for a piece of text, from 0 to one below the size of the vocabulary.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i32);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether to add the tokens that the model wants around a text, such as the one that begins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSpecial {
    /// As the model asks for.
    Auto,
    /// None.
    No,
}

/// Whether text that spells a control token, such as `<|im_start|>`, becomes that token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseSpecial {
    /// It does. Never for text from a stranger.
    Yes,
    /// It is ordinary text.
    No,
}

/// Whether control tokens appear in text that is made from tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderSpecial {
    /// They are spelled out.
    Yes,
    /// They vanish.
    No,
}

/// How the vocabulary cuts text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VocabKind {
    /// The model has none.
    None,
    /// SentencePiece: merges by score, bytes as a last resort.
    Spm,
    /// Byte pairs.
    Bpe,
    /// WordPiece.
    Wpm,
    /// Unigram.
    Ugm,
    /// Greedy, from a trie.
    Rwkv,
    /// The one of PLaMo-2.
    Plamo2,
    /// Another one.
    Other,
}

/// A model's vocabulary.
#[derive(Debug, Clone, Copy)]
pub struct Vocab<'model> {
    model: &'model Model,
}

impl<'model> Vocab<'model> {
    pub(crate) fn new(model: &'model Model) -> Self {
        Self { model }
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.model.facts().n_vocab
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How it cuts text.
    #[must_use]
    pub fn kind(&self) -> VocabKind {
        // SAFETY: the model lives; the function only reads it.
        match unsafe { ffi::llama_vocab_type(self.as_ptr()) } {
            ffi::LLAMA_VOCAB_TYPE_NONE => VocabKind::None,
            ffi::LLAMA_VOCAB_TYPE_SPM => VocabKind::Spm,
            ffi::LLAMA_VOCAB_TYPE_BPE => VocabKind::Bpe,
            ffi::LLAMA_VOCAB_TYPE_WPM => VocabKind::Wpm,
            ffi::LLAMA_VOCAB_TYPE_UGM => VocabKind::Ugm,
            ffi::LLAMA_VOCAB_TYPE_RWKV => VocabKind::Rwkv,
            ffi::LLAMA_VOCAB_TYPE_PLAMO2 => VocabKind::Plamo2,
            _ => VocabKind::Other,
        }
    }

    /// Tokens of a text. Any bytes are taken: those that are not UTF-8 become the vocabulary's byte tokens if it has them,
    /// and U+FFFD otherwise.
    ///
    /// # Errors
    /// When there is no vocabulary, or the text is too long to be cut at once.
    pub fn tokenize(
        &self,
        text: impl AsRef<[u8]>,
        add: AddSpecial,
        parse: ParseSpecial,
    ) -> Result<Vec<Token>, VocabError> {
        let text = text.as_ref();
        self.needs_vocabulary()?;
        if text.len() > text_limits::MAX_TEXT_BYTES {
            return Err(VocabError::TextTooLong {
                bytes: text.len(),
                max_bytes: text_limits::MAX_TEXT_BYTES,
            });
        }
        let vocab = *self;
        let tokens = text_limits::with_stack_for(text, move || {
            vocab.tokenize_here(text, add, parse).or_else(|error| {
                match String::from_utf8_lossy(text) {
                    // Some vocabularies throw at bytes that spell no character.
                    Cow::Owned(mended) => vocab.tokenize_here(mended.as_bytes(), add, parse),
                    Cow::Borrowed(_) => Err(error),
                }
            })
        });
        Ok(tokens?.into_iter().map(Token).collect())
    }

    fn tokenize_here(
        &self,
        text: &[u8],
        add: AddSpecial,
        parse: ParseSpecial,
    ) -> Result<Vec<i32>, VocabError> {
        let (vocab, add, parse) = (
            self.as_ptr(),
            add == AddSpecial::Auto,
            parse == ParseSpecial::Yes,
        );
        let tokens = sized(text.len() / 2 + 8, |buffer: &mut [i32]| {
            let mut count = 0;
            // SAFETY: the vocabulary lives, `text` is read and `buffer` written within the lengths that go with them.
            let status = unsafe {
                ffi::rkv_vocab_tokenize(
                    vocab,
                    text.as_ptr().cast::<c_char>(),
                    text.len(),
                    add,
                    parse,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    &raw mut count,
                )
            };
            (status, count)
        });
        Ok(tokens?)
    }

    /// The bytes that one token adds to a text. They need not be whole characters: see [`Utf8Stream`](crate::Utf8Stream).
    ///
    /// # Errors
    /// When the vocabulary has no such token.
    pub fn piece(&self, token: Token, render: RenderSpecial) -> Result<Vec<u8>, VocabError> {
        self.needs_token(token)?;
        let vocab = self.as_ptr();
        let piece = sized(16, |buffer: &mut [u8]| {
            let mut len = 0;
            // SAFETY: the vocabulary lives, the token is in range and `buffer` is written within its length.
            let status = unsafe {
                ffi::rkv_vocab_piece(
                    vocab,
                    token.0,
                    render == RenderSpecial::Yes,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &raw mut len,
                )
            };
            (status, len)
        });
        Ok(piece?)
    }

    /// The bytes of a run of tokens, tidied as the vocabulary asks for (a leading space goes, for instance).
    ///
    /// # Errors
    /// When the vocabulary lacks one of the tokens.
    pub fn detokenize(
        &self,
        tokens: &[Token],
        render: RenderSpecial,
    ) -> Result<Vec<u8>, VocabError> {
        self.needs_vocabulary()?;
        for token in tokens {
            self.needs_token(*token)?;
        }
        if tokens.len() > text_limits::MAX_TEXT_BYTES {
            return Err(VocabError::TextTooLong {
                bytes: tokens.len(),
                max_bytes: text_limits::MAX_TEXT_BYTES,
            });
        }
        let vocab = self.as_ptr();
        let text = sized(tokens.len() * 4 + 16, |buffer: &mut [u8]| {
            let mut len = 0;
            // SAFETY: the vocabulary lives, every token is in range, Token is an i32 and both lengths are right.
            let status = unsafe {
                ffi::rkv_vocab_detokenize(
                    vocab,
                    tokens.as_ptr().cast(),
                    tokens.len(),
                    false,
                    render == RenderSpecial::Yes,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &raw mut len,
                )
            };
            (status, len)
        });
        Ok(text?)
    }

    /// How the vocabulary spells a token, with its own marks for spaces and bytes.
    ///
    /// # Errors
    /// When the vocabulary has no such token.
    pub fn spelling(&self, token: Token) -> Result<String, VocabError> {
        self.needs_token(token)?;
        // SAFETY: the vocabulary lives and the token is in range; the text belongs to the vocabulary and is copied.
        let text = unsafe { CStr::from_ptr(ffi::llama_vocab_get_text(self.as_ptr(), token.0)) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Whether a token ends the generation: end of text, of turn, and the like. `false` for a token that does not exist.
    #[must_use]
    pub fn is_end(&self, token: Token) -> bool {
        // SAFETY: the vocabulary lives; the function looks the number up in a set.
        self.has(token) && unsafe { ffi::llama_vocab_is_eog(self.as_ptr(), token.0) }
    }

    /// Whether a token steers the model instead of standing for text. `false` for a token that does not exist.
    #[must_use]
    pub fn is_control(&self, token: Token) -> bool {
        let known = self.has(token) && self.kind() != VocabKind::None;
        // SAFETY: the vocabulary lives, is of a kind that has attributes, and the token is in range.
        known && unsafe { ffi::llama_vocab_is_control(self.as_ptr(), token.0) }
    }

    /// The token that begins a text.
    #[must_use]
    pub fn bos(&self) -> Option<Token> {
        self.special(ffi::llama_vocab_bos)
    }

    /// The token that ends a text.
    #[must_use]
    pub fn eos(&self) -> Option<Token> {
        self.special(ffi::llama_vocab_eos)
    }

    /// The token that ends a turn of a conversation.
    #[must_use]
    pub fn eot(&self) -> Option<Token> {
        self.special(ffi::llama_vocab_eot)
    }

    /// The token of a line break.
    #[must_use]
    pub fn newline(&self) -> Option<Token> {
        self.special(ffi::llama_vocab_nl)
    }

    /// The token that fills up.
    #[must_use]
    pub fn pad(&self) -> Option<Token> {
        self.special(ffi::llama_vocab_pad)
    }

    /// The token that an encoder-decoder model's answer begins with.
    #[must_use]
    pub fn decoder_start(&self) -> Option<Token> {
        // SAFETY: the model lives; the function only reads it.
        let token = unsafe { ffi::llama_model_decoder_start_token(self.model.as_ptr()) };
        Some(Token(token)).filter(|token| self.has(*token))
    }

    /// Whether [`AddSpecial::Auto`] puts [`bos`](Self::bos) first.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        // SAFETY: the vocabulary lives; the function only reads it.
        unsafe { ffi::llama_vocab_get_add_bos(self.as_ptr()) }
    }

    /// Whether there is such a token.
    #[must_use]
    pub fn has(&self, token: Token) -> bool {
        u32::try_from(token.0).is_ok_and(|token| token < self.len())
    }

    pub(crate) fn as_ptr(&self) -> *const ffi::llama_vocab {
        // SAFETY: the model lives; the function answers a pointer into it.
        unsafe { ffi::llama_model_get_vocab(self.model.as_ptr()) }
    }

    pub(crate) fn needs_vocabulary(&self) -> Result<(), VocabError> {
        if self.kind() == VocabKind::None {
            Err(VocabError::NoVocabulary)
        } else {
            Ok(())
        }
    }

    fn needs_token(&self, token: Token) -> Result<(), VocabError> {
        self.needs_vocabulary()?;
        if self.has(token) {
            Ok(())
        } else {
            Err(VocabError::TokenOutOfRange {
                token: token.0,
                n_vocab: self.len(),
            })
        }
    }

    fn special(&self, get: unsafe extern "C" fn(*const ffi::llama_vocab) -> i32) -> Option<Token> {
        // SAFETY: every caller passes one of llama.cpp's getters, which only read the vocabulary, and it lives.
        let token = unsafe { get(self.as_ptr()) };
        Some(Token(token)).filter(|token| self.has(*token))
    }
}
