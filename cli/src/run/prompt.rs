//! The text of the prompt: from the command line, a file or standard input.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::args::PromptArgs;

/// There is no prompt to work with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    #[error("the prompt is empty\n  next: give a text with -p, or a file with --file")]
    Empty,

    #[error(
        "cannot read the prompt from {}: {source}\n  next: check the path given to --file",
        name(path)
    )]
    Unreadable { path: PathBuf, source: io::Error },

    #[error(
        "the prompt from {} is not UTF-8: byte {offset} starts no character\n  next: convert it, for example with \
         `iconv -t UTF-8`",
        name(path)
    )]
    NotUtf8 { path: PathBuf, offset: usize },
}

fn name(path: &Path) -> String {
    if is_stdin(path) {
        "standard input".into()
    } else {
        path.display().to_string()
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The prompt that the options ask for; never empty.
pub fn text(args: &PromptArgs) -> Result<String, PromptError> {
    let text = match (&args.prompt, &args.file) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(path)) => from_file(path)?,
        (None, None) => String::new(),
    };
    if text.is_empty() {
        Err(PromptError::Empty)
    } else {
        Ok(text)
    }
}

fn from_file(path: &Path) -> Result<String, PromptError> {
    let mut bytes = Vec::new();
    let read = if is_stdin(path) {
        io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        fs::read(path).map(|content| bytes = content)
    };
    read.map_err(|source| PromptError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    // An editor ends the last line with a line feed, which would be one more token.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|error| PromptError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}
