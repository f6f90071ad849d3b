//! Making a text of exactly so many tokens.

/// Why no question could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The question alone is longer.
    #[error(
        "a question of {length} tokens is too short: it takes {least} without any text around it; give a longer one"
    )]
    TooShort {
        /// What was asked for.
        length: usize,
        /// What the question takes.
        least: usize,
    },
    /// No number of filling words gives that length.
    #[error(
        "no text of exactly {length} tokens was found ({nearest} is the nearest); give another length or seed"
    )]
    NotExact {
        /// What was asked for.
        length: usize,
        /// What came nearest.
        nearest: usize,
    },
    /// The needle cannot stand there.
    #[error("no sentence can stand astride token {token} of {length}; give another place")]
    NotAstride {
        /// The border.
        token: usize,
        /// Tokens of the text.
        length: usize,
    },
    /// The vocabulary refused the text.
    #[error("the text could not be made into tokens: {0}")]
    Vocabulary(String),
}

/// What counts tokens.
pub trait Tokens {
    /// Tokens of a text that stands at the beginning of a context.
    ///
    /// # Errors
    /// When the vocabulary refuses the text.
    fn count(&self, text: &str) -> Result<usize, FitError>;
}

/// Words that fill a text up; each should be one token.
const FILLERS: [&str; 3] = [" and", " so", " then"];

/// The most of `make(n)`, for n from 0 to `most`, that has no more than `length` tokens. The count grows with n.
pub fn most(
    length: usize,
    most: usize,
    tokens: &dyn Tokens,
    make: &dyn Fn(usize) -> String,
) -> Result<usize, FitError> {
    let least = tokens.count(&make(0))?;
    if least > length {
        return Err(FitError::TooShort { length, least });
    }
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if tokens.count(&make(middle))? <= length {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(low)
}

/// A text of exactly `length` tokens: `make(filling)` with as many filling words as it takes.
pub fn exactly(
    length: usize,
    tokens: &dyn Tokens,
    make: &dyn Fn(&str) -> String,
) -> Result<String, FitError> {
    let mut nearest = 0usize;
    for filler in FILLERS {
        let mut words = length.saturating_sub(tokens.count(&make(""))?);
        // A filling word may take more than one token, or grow together with what follows.
        for _ in 0..8 {
            let text = make(&filler.repeat(words));
            let found = tokens.count(&text)?;
            if found == length {
                return Ok(text);
            }
            if nearest.abs_diff(length) > found.abs_diff(length) {
                nearest = found;
            }
            words = (words + length).saturating_sub(found);
        }
    }
    Err(FitError::NotExact { length, nearest })
}
