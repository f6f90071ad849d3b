//! Laying out a conversation as the text that a model was trained on.

use std::ffi::{CStr, CString, c_char};

use crate::error::{ChatError, FailureKind};
use crate::ffi;
use crate::model::Model;
use crate::status::sized;

/// Longest conversation, in bytes: llama.cpp counts in 31 bits, and a template adds to it.
const MAX_CHAT_BYTES: usize = 256 << 20;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who says it: `system`, `user`, `assistant` or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// A message that sets the scene.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }
}

/// Whether the text ends with the opening of the model's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It does, so that what the model writes next is its answer.
    Open,
    /// It ends with the last message.
    NotYet,
}

/// How a conversation is laid out. llama.cpp recognises the templates of many models and lays them out itself; it does
/// not run arbitrary Jinja.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    text: CString,
}

impl ChatTemplate {
    /// The template that the model brings.
    ///
    /// # Errors
    /// When it brings none.
    pub fn of(model: &Model) -> Result<Self, ChatError> {
        let text = model.chat_template(None).ok_or(ChatError::NoTemplate)?;
        Ok(Self {
            text: CString::new(text).map_err(|_| ChatError::UnsupportedTemplate)?,
        })
    }

    /// One of [`builtin_names`](Self::builtin_names), such as `chatml`, or the Jinja text of a template.
    ///
    /// # Errors
    /// When the text holds a NUL byte. Whether llama.cpp knows it turns out in [`format`](Self::format).
    pub fn named(text: &str) -> Result<Self, ChatError> {
        Ok(Self {
            text: CString::new(text).map_err(|_| ChatError::UnsupportedTemplate)?,
        })
    }

    /// Names that [`named`](Self::named) takes.
    #[must_use]
    pub fn builtin_names() -> Vec<String> {
        let list = |out: *mut *const c_char, len| {
            // SAFETY: `out` is NULL with a length of 0, or has room for `len` pointers.
            unsafe { ffi::llama_chat_builtin_templates(out, len) }
        };
        let count = usize::try_from(list(std::ptr::null_mut(), 0)).unwrap_or(0);
        let mut names = vec![std::ptr::null(); count];
        list(names.as_mut_ptr(), count);
        names.retain(|name| !name.is_null());
        let text = |name: *const c_char| {
            // SAFETY: each is a static, NUL-terminated name.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        names.into_iter().map(text).collect()
    }

    /// The conversation as one text. Tokenise it with [`ParseSpecial::Yes`](crate::ParseSpecial::Yes).
    ///
    /// # Errors
    /// When llama.cpp does not know the template, or a message holds a NUL byte.
    pub fn format(&self, messages: &[ChatMessage], answer: Answer) -> Result<String, ChatError> {
        let bytes = messages
            .iter()
            .map(|message| message.role.len() + message.content.len())
            .sum();
        if bytes > MAX_CHAT_BYTES {
            return Err(ChatError::TooLong {
                bytes,
                max_bytes: MAX_CHAT_BYTES,
            });
        }
        let mut texts = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let role = CString::new(message.role.as_str()).map_err(|_| ChatError::Nul {
                what: "role",
                index,
            })?;
            let content = CString::new(message.content.as_str()).map_err(|_| ChatError::Nul {
                what: "content",
                index,
            })?;
            texts.push((role, content));
        }
        let raw: Vec<_> = texts
            .iter()
            .map(|(role, content)| ffi::llama_chat_message {
                role: role.as_ptr(),
                content: content.as_ptr(),
            })
            .collect();

        let text = sized(bytes * 2 + 256, |buffer: &mut [u8]| {
            let mut len = 0;
            // SAFETY: every text is NUL-terminated and owned by `texts` or `self`; both lengths are right.
            let status = unsafe {
                ffi::rkv_chat_format(
                    self.text.as_ptr(),
                    raw.as_ptr(),
                    raw.len(),
                    answer == Answer::Open,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &raw mut len,
                )
            };
            (status, len)
        });
        let text = text.map_err(|failure| match failure.kind() {
            FailureKind::Unsupported => ChatError::UnsupportedTemplate,
            _ => ChatError::Failed(failure),
        })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
