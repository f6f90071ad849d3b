//! The steps that a sampler is made of, and their limits.

use std::ffi::CString;

use crate::error::{Failure, FailureKind, SamplerError};
use crate::model::Model;
use crate::sampler::Sampler;
use crate::status::check;
use crate::vocab::Token;
use crate::{ffi, grammar};

/// Most tokens that penalties look back.
const MAX_LAST_N: u32 = 1 << 20;

/// What [`SamplerBuilder::penalties`] takes off tokens that appeared lately. The default takes nothing off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    /// How many of the last tokens count.
    pub last_n: u32,
    /// Divides the logit of a token that appeared; 1 changes nothing.
    pub repeat: f32,
    /// Taken off the logit for each time the token appeared.
    pub frequency: f32,
    /// Taken off the logit once if the token appeared.
    pub presence: f32,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            last_n: 64,
            repeat: 1.0,
            frequency: 0.0,
            presence: 0.0,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    TopK(u32),
    TopP(f32),
    MinP(f32),
    Temperature(f32),
    Penalties(Penalties),
    Bias(Vec<(Token, f32)>),
    Grammar { text: String, root: String },
    Greedy,
    Random(Option<u32>),
}

/// The steps of a [`Sampler`], in the order in which they are applied. The last one chooses.
///
/// ```
/// # fn demo(model: &rolling_kv::Model) -> rolling_kv::Result<()> {
/// let sampler = rolling_kv::Sampler::builder().top_k(40).top_p(0.95).temperature(0.8).random(42).build(model)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct SamplerBuilder {
    steps: Vec<Step>,
}

impl SamplerBuilder {
    /// Keeps the `k` likeliest tokens; 0 keeps all.
    pub fn top_k(self, k: u32) -> Self {
        self.step(Step::TopK(k))
    }

    /// Keeps the likeliest tokens whose probabilities add up to `p`, above 0 and up to 1; 1 keeps all.
    pub fn top_p(self, p: f32) -> Self {
        self.step(Step::TopP(p))
    }

    /// Keeps tokens that are at least `p` times as likely as the likeliest, from 0 (all) to 1.
    pub fn min_p(self, p: f32) -> Self {
        self.step(Step::MinP(p))
    }

    /// Divides the logits: below 1 sharpens, above 1 flattens, 0 leaves only the likeliest.
    pub fn temperature(self, temperature: f32) -> Self {
        self.step(Step::Temperature(temperature))
    }

    /// Makes tokens that appeared lately less likely.
    pub fn penalties(self, penalties: Penalties) -> Self {
        self.step(Step::Penalties(penalties))
    }

    /// Adds to the logits of these tokens; minus infinity forbids one.
    pub fn bias(self, bias: &[(Token, f32)]) -> Self {
        self.step(Step::Bias(bias.to_vec()))
    }

    /// Allows only text that the GBNF grammar produces from its rule `root`. Put it before the steps that drop tokens, so
    /// that they cannot drop all that it allows.
    pub fn grammar(self, text: &str, root: &str) -> Self {
        self.step(Step::Grammar {
            text: text.to_owned(),
            root: root.to_owned(),
        })
    }

    /// Chooses the likeliest token.
    pub fn greedy(self) -> Self {
        self.step(Step::Greedy)
    }

    /// Chooses by chance, repeatably: the same seed gives the same choices.
    pub fn random(self, seed: u32) -> Self {
        self.step(Step::Random(Some(seed)))
    }

    /// Chooses by chance, differently each time.
    pub fn random_unseeded(self) -> Self {
        self.step(Step::Random(None))
    }

    /// Makes the sampler, for this model.
    ///
    /// # Errors
    /// When a number is out of its range, the grammar does not parse, or no step chooses.
    pub fn build(self, model: &Model) -> Result<Sampler<'_>, SamplerError> {
        Sampler::new(model, &self.steps)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl Step {
    pub(crate) fn check(&self, n_vocab: u32) -> Result<(), SamplerError> {
        let in_range = |option, value: f32, fits: bool, expected| {
            if fits {
                Ok(())
            } else {
                Err(SamplerError::BadNumber {
                    option,
                    value: value.into(),
                    expected,
                })
            }
        };
        match self {
            Self::TopP(p) => in_range(
                "top_p",
                *p,
                *p > 0.0 && *p <= 1.0,
                "use more than 0 and at most 1",
            ),
            Self::MinP(p) => in_range("min_p", *p, *p >= 0.0 && *p <= 1.0, "use 0 to 1"),
            Self::Temperature(t) => in_range(
                "temperature",
                *t,
                t.is_finite() && *t >= 0.0,
                "use 0 or more",
            ),
            Self::Penalties(penalties) => penalties.check(in_range),
            Self::Random(Some(ffi::LLAMA_DEFAULT_SEED)) => {
                let expected =
                    "llama.cpp takes this number for no seed; use another, or random_unseeded()";
                Err(SamplerError::BadNumber {
                    option: "seed",
                    value: ffi::LLAMA_DEFAULT_SEED.into(),
                    expected,
                })
            }
            Self::Bias(bias) => bias.iter().try_for_each(|(token, value)| {
                if !u32::try_from(token.0).is_ok_and(|token| token < n_vocab) {
                    return Err(SamplerError::TokenOutOfRange {
                        token: token.0,
                        n_vocab,
                    });
                }
                in_range(
                    "bias",
                    *value,
                    !value.is_nan() && *value < f32::INFINITY,
                    "use a number, or minus infinity",
                )
            }),
            Self::TopK(_) | Self::Grammar { .. } | Self::Greedy | Self::Random(_) => Ok(()),
        }
    }

    /// A new C object that the caller owns.
    pub(crate) fn make(&self, model: &Model) -> Result<*mut ffi::llama_sampler, SamplerError> {
        let n_vocab = model.facts().n_vocab as i32;
        if let Self::Grammar { text, root } = self {
            return make_grammar(model, text, root);
        }
        // SAFETY: every function takes plain numbers, which were checked, and answers a new object. The biases are copied
        // during the call.
        let raw = unsafe {
            match self {
                Self::TopK(k) => ffi::llama_sampler_init_top_k((*k).min(i32::MAX as u32) as i32),
                Self::TopP(p) => ffi::llama_sampler_init_top_p(*p, 1),
                Self::MinP(p) => ffi::llama_sampler_init_min_p(*p, 1),
                Self::Temperature(t) => ffi::llama_sampler_init_temp(*t),
                Self::Penalties(p) => ffi::llama_sampler_init_penalties(
                    n_vocab,
                    p.last_n as i32,
                    p.repeat,
                    p.frequency,
                    p.presence,
                ),
                Self::Bias(bias) => {
                    let raw: Vec<_> = bias
                        .iter()
                        .map(|(token, bias)| ffi::llama_logit_bias {
                            token: token.0,
                            bias: *bias,
                        })
                        .collect();
                    ffi::llama_sampler_init_logit_bias(n_vocab, raw.len() as i32, raw.as_ptr())
                }
                Self::Random(seed) => {
                    ffi::llama_sampler_init_dist(seed.unwrap_or(ffi::LLAMA_DEFAULT_SEED))
                }
                Self::Greedy | Self::Grammar { .. } => ffi::llama_sampler_init_greedy(),
            }
        };
        if raw.is_null() {
            Err(no_sampler().into())
        } else {
            Ok(raw)
        }
    }
}

fn make_grammar(
    model: &Model,
    text: &str,
    root: &str,
) -> Result<*mut ffi::llama_sampler, SamplerError> {
    let refused = |reason: String| SamplerError::Grammar { reason };
    let vocab = model.vocab();
    vocab
        .needs_vocabulary()
        .map_err(|_| SamplerError::NoVocabulary)?;
    grammar::check_limits(text).map_err(refused)?;
    let c_text = CString::new(text).map_err(|_| refused("it holds a NUL byte".into()))?;
    let c_root =
        CString::new(root).map_err(|_| refused("the root's name holds a NUL byte".into()))?;
    let mut out = std::ptr::null_mut();
    // SAFETY: both texts are NUL-terminated; the vocabulary outlives the sampler, which borrows its model.
    check(unsafe {
        ffi::rkv_sampler_grammar_new(
            vocab.as_ptr(),
            c_text.as_ptr(),
            c_root.as_ptr(),
            &raw mut out,
        )
    })
    .map_err(|failure| refused(failure.text().to_owned()))?;
    if out.is_null() {
        Err(no_sampler().into())
    } else {
        Ok(out)
    }
}

impl Penalties {
    fn check(
        &self,
        in_range: impl Fn(&'static str, f32, bool, &'static str) -> Result<(), SamplerError>,
    ) -> Result<(), SamplerError> {
        let finite = "use an ordinary number";
        in_range(
            "penalty last_n",
            self.last_n as f32,
            self.last_n <= MAX_LAST_N,
            "use at most 1048576 tokens",
        )?;
        in_range(
            "penalty repeat",
            self.repeat,
            self.repeat.is_finite() && self.repeat > 0.0,
            "use more than 0",
        )?;
        in_range(
            "penalty frequency",
            self.frequency,
            self.frequency.is_finite(),
            finite,
        )?;
        in_range(
            "penalty presence",
            self.presence,
            self.presence.is_finite(),
            finite,
        )
    }
}

#[cold]
pub(crate) fn no_sampler() -> Failure {
    Failure::new(FailureKind::Refused, "no sampler was made")
}
