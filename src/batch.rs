//! Tokens to be run, with their places.

use crate::vocab::Token;

/// Whether a token's logits (or embedding) are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// They are.
    Yes,
    /// They are not, which saves time.
    No,
}

/// Tokens to be run in one go, each with its position and its sequences. Reuse one: [`clear`](Self::clear) keeps its
/// memory. What it holds is checked against the context when it is run.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    tokens: Vec<Token>,
    positions: Vec<i32>,
    outputs: Vec<i8>,
    /// Sequences of all tokens, one after the other.
    seqs: Vec<i32>,
    /// Where each token's sequences end in `seqs`.
    seq_ends: Vec<usize>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with memory for `tokens` tokens of one sequence each.
    #[must_use]
    pub fn with_capacity(tokens: usize) -> Self {
        Self {
            tokens: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            outputs: Vec::with_capacity(tokens),
            seqs: Vec::with_capacity(tokens),
            seq_ends: Vec::with_capacity(tokens),
        }
    }

    /// Consecutive tokens of one sequence from `position` on; only the last one is an output.
    #[must_use]
    pub fn of(tokens: &[Token], position: i32, seq: i32) -> Self {
        let mut batch = Self::with_capacity(tokens.len());
        batch.extend(tokens, position, seq);
        batch
    }

    /// Adds a token at `position` of each of `seqs`. Several sequences share the token in a context with
    /// [`kv_unified`](crate::ContextParams::kv_unified).
    pub fn push(&mut self, token: Token, position: i32, seqs: &[i32], output: Output) -> &mut Self {
        self.tokens.push(token);
        self.positions.push(position);
        self.outputs.push(i8::from(output == Output::Yes));
        self.seqs.extend_from_slice(seqs);
        self.seq_ends.push(self.seqs.len());
        self
    }

    /// Adds consecutive tokens of one sequence from `position` on; only the last one is an output.
    pub fn extend(&mut self, tokens: &[Token], position: i32, seq: i32) -> &mut Self {
        for (offset, token) in tokens.iter().enumerate() {
            let output = if offset + 1 == tokens.len() {
                Output::Yes
            } else {
                Output::No
            };
            // A position that would overflow becomes the last one, which is refused when it repeats.
            let position = i32::try_from(i64::from(position) + offset as i64).unwrap_or(i32::MAX);
            self.push(*token, position, &[seq], output);
        }
        self
    }

    /// Forgets every token.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.outputs.clear();
        self.seqs.clear();
        self.seq_ends.clear();
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The tokens' positions.
    #[must_use]
    pub fn positions(&self) -> &[i32] {
        &self.positions
    }

    /// The sequences of the token at `index`; `None` when there is no such token.
    #[must_use]
    pub fn seqs(&self, index: usize) -> Option<&[i32]> {
        let end = *self.seq_ends.get(index)?;
        let start = if index == 0 {
            0
        } else {
            self.seq_ends[index - 1]
        };
        Some(&self.seqs[start..end])
    }

    pub(crate) fn outputs(&self) -> &[i8] {
        &self.outputs
    }
}
