use super::Failure;

/// Why a sampler could not be made or did not choose.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// Nothing in the chain chooses a token.
    #[error("the chain chooses nothing: end it with greedy() or random(seed)")]
    NoSelector,
    /// A step after the one that chooses would have no effect.
    #[error(
        "step {index} of the chain comes after the one that chooses: put greedy() or random(seed) last"
    )]
    AfterSelector {
        /// Index of the step.
        index: usize,
    },
    /// A number is out of its range.
    #[error("{option} = {value}: {expected}")]
    BadNumber {
        /// The parameter.
        option: &'static str,
        /// What was asked for.
        value: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// A bias for a token that the vocabulary does not have.
    #[error("there is no token {token} to bias: the vocabulary has 0..{n_vocab}")]
    TokenOutOfRange {
        /// The token.
        token: i32,
        /// Size of the vocabulary.
        n_vocab: u32,
    },
    /// The grammar does not parse.
    #[error("the grammar cannot be used: {reason}")]
    Grammar {
        /// Where and why.
        reason: String,
    },
    /// A grammar needs a vocabulary.
    #[error("a grammar needs a model with a vocabulary")]
    NoVocabulary,
    /// The grammar does not allow this token here. The sampler is unchanged.
    #[error(
        "the grammar does not allow token {token} here: sample one that it does, or reset() the sampler for a new text"
    )]
    GrammarRejects {
        /// The token.
        token: i32,
    },
    /// The steps forbid every token that is left.
    #[error(
        "no candidate is left: the grammar and the biases forbid each one; put them before the steps that drop tokens"
    )]
    NoCandidate,
    /// The logits belong to a model with another vocabulary.
    #[error(
        "{found} logits were given to a sampler for {expected} tokens: make the sampler with the model that made the logits"
    )]
    OtherVocabulary {
        /// Tokens in the sampler's vocabulary.
        expected: usize,
        /// Logits that were given.
        found: usize,
    },
    /// The model computed nonsense.
    #[error(
        "the logit of token {token} is not a number: the model's weights or the cache are damaged"
    )]
    NotANumber {
        /// The token.
        token: usize,
    },
    /// An earlier failure left the sampler in the middle of a step.
    #[error("the sampler is in the middle of a failed step: call reset() first")]
    NeedsReset,
    /// llama.cpp failed.
    #[error("llama.cpp failed while sampling: {0}")]
    Failed(#[from] Failure),
}
