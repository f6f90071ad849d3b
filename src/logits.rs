//! What the last batch gave, borrowed from the context.

use std::ops::Deref;

use crate::vocab::Token;

/// One number per token of the vocabulary: the higher, the likelier. Borrowed from the context, which cannot run another
/// batch meanwhile:
///
/// ```compile_fail
/// # fn demo(mut context: rolling_kv::Context<'_>, batch: rolling_kv::Batch) -> rolling_kv::Result<()> {
/// let logits = context.logits(0)?;
/// context.decode(&batch)?; // would overwrite them
/// println!("{}", logits[0]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Logits<'context> {
    values: &'context [f32],
}

impl<'context> Logits<'context> {
    pub(crate) fn new(values: &'context [f32]) -> Self {
        Self { values }
    }

    /// The numbers, by token.
    #[must_use]
    pub fn values(&self) -> &'context [f32] {
        self.values
    }

    /// The likeliest token; the first of equals.
    #[must_use]
    pub fn best(&self) -> Token {
        let mut best = 0;
        for (index, value) in self.values.iter().enumerate() {
            if *value > self.values[best] {
                best = index;
            }
        }
        Token(i32::try_from(best).unwrap_or(0))
    }
}

impl Deref for Logits<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.values
    }
}
