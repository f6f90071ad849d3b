//! What the needle gate lets a model read and say.

use rolling_kv::{Context, Model, RenderSpecial, Token};

use crate::digest::Digest;
use crate::error::GateError;

/// Reads tokens into a sequence, and digests the logits after each part.
pub struct Reader<'a, 'model> {
    context: &'a mut Context<'model>,
    last: Vec<f32>,
    digest: Digest,
}

impl<'a, 'model> Reader<'a, 'model> {
    pub fn new(context: &'a mut Context<'model>) -> Self {
        Self {
            context,
            last: Vec::new(),
            digest: Digest::new(),
        }
    }

    /// Logits after the last token.
    pub fn last(&self) -> &[f32] {
        &self.last
    }

    /// A digest of all logits so far.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    pub fn read(&mut self, tokens: &[Token]) -> Result<(), GateError> {
        self.context.append(0, tokens)?;
        self.last = self.context.last_logits()?.to_vec();
        self.digest.floats(&self.last);
        Ok(())
    }

    pub fn back_to(&mut self, position: i32, logits: Vec<f32>) -> Result<(), GateError> {
        self.context.memory().remove(0, position..)?;
        self.last = logits;
        Ok(())
    }

    /// The most probable tokens, up to an end of text or of a line.
    pub fn generate(&mut self, model: &Model, most: usize) -> Result<String, GateError> {
        let vocab = model.vocab();
        let mut tokens = Vec::new();
        let mut text = String::new();
        while tokens.len() < most {
            let token = Token(best(&self.last) as i32);
            if vocab.is_end(token) {
                break;
            }
            tokens.push(token);
            let bytes = vocab.detokenize(&tokens, RenderSpecial::No)?;
            text = String::from_utf8_lossy(&bytes).into_owned();
            if text.trim_start().contains('\n') {
                break;
            }
            self.read(&[token])?;
        }
        Ok(text.trim().to_owned())
    }
}

fn best(logits: &[f32]) -> usize {
    (0..logits.len())
        .max_by(|&i, &j| logits[i].total_cmp(&logits[j]).then(j.cmp(&i)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_equal_logits_the_first_is_best() {
        assert_eq!(best(&[1.0, -2.0, 3.5, 0.0]), 2);
        assert_eq!(best(&[1.0, 3.5, 3.5]), 1);
    }
}
