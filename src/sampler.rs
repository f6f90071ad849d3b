//! Choosing the next token.

use std::fmt;

use crate::error::{Failure, FailureKind, SamplerError};
use crate::ffi;
use crate::logits::Logits;
use crate::model::Model;
use crate::ptr::Ptr;
use crate::sampler_steps::{SamplerBuilder, Step, no_sampler};
use crate::status::check;
use crate::vocab::Token;

/// A chain of steps that chooses a token from logits and remembers what it chose. It borrows the model, whose vocabulary
/// a grammar looks into:
///
/// ```compile_fail
/// # fn demo(model: rolling_kv::Model) -> rolling_kv::Result<()> {
/// let mut sampler = rolling_kv::Sampler::builder().greedy().build(&model)?;
/// drop(model); // the sampler still needs it
/// sampler.reset()?;
/// # Ok(()) }
/// ```
pub struct Sampler<'model> {
    chain: Ptr<ffi::llama_sampler>,
    model: &'model Model,
    /// Where in the chain the grammars are.
    grammars: Vec<i32>,
    candidates: Vec<ffi::llama_token_data>,
    broken: bool,
}

// SAFETY: llama.cpp ties a sampler to no thread, and the vocabulary that a grammar reads is only ever read. It is not
// Sync, as choosing changes it; its raw pointers see to that.
unsafe impl Send for Sampler<'_> {}

impl<'model> Sampler<'model> {
    /// Begins a chain.
    pub fn builder() -> SamplerBuilder {
        SamplerBuilder::default()
    }

    pub(crate) fn new(model: &'model Model, steps: &[Step]) -> Result<Self, SamplerError> {
        let chooses = |step: &Step| matches!(step, Step::Greedy | Step::Random(_));
        match steps.iter().position(chooses) {
            None => return Err(SamplerError::NoSelector),
            Some(at) if at + 1 < steps.len() => {
                return Err(SamplerError::AfterSelector { index: at + 1 });
            }
            Some(_) => {}
        }
        let n_vocab = model.facts().n_vocab;
        for step in steps {
            step.check(n_vocab)?;
        }
        // SAFETY: takes a struct by value and answers a new object.
        let chain =
            unsafe { ffi::llama_sampler_chain_init(ffi::llama_sampler_chain_default_params()) };
        let chain = Ptr::new(chain).ok_or_else(no_sampler)?;
        let mut sampler = Self {
            chain,
            model,
            grammars: Vec::new(),
            candidates: Vec::new(),
            broken: false,
        };
        for (index, step) in steps.iter().enumerate() {
            let raw = step.make(model)?;
            // SAFETY: the chain lives and takes over the new step, which nothing else holds.
            unsafe { ffi::llama_sampler_chain_add(sampler.chain.as_mut_ptr(), raw) };
            if matches!(step, Step::Grammar { .. }) {
                sampler.grammars.push(index as i32);
            }
        }
        Ok(sampler)
    }

    /// Chooses a token and remembers it, as [`accept`](Self::accept) does.
    ///
    /// # Errors
    /// When the grammar leaves none of the candidates, or a logit is not a number.
    pub fn sample(&mut self, logits: &Logits<'_>) -> Result<Token, SamplerError> {
        let token = self.choose(logits)?;
        self.accept(token)?;
        Ok(token)
    }

    /// Chooses a token without remembering it. A random step moves on all the same.
    ///
    /// # Errors
    /// When the grammar leaves none of the candidates, or a logit is not a number.
    pub fn choose(&mut self, logits: &Logits<'_>) -> Result<Token, SamplerError> {
        self.needs_whole()?;
        let expected = self.model.facts().n_vocab as usize;
        if logits.len() != expected {
            return Err(SamplerError::OtherVocabulary {
                expected,
                found: logits.len(),
            });
        }
        self.candidates.clear();
        let mut sound = true;
        self.candidates
            .extend(logits.iter().zip(0..).map(|(&logit, id)| {
                sound &= !logit.is_nan();
                ffi::llama_token_data { id, logit, p: 0.0 }
            }));
        if !sound {
            let token = logits.iter().position(|logit| logit.is_nan()).unwrap_or(0);
            return Err(SamplerError::NotANumber { token });
        }
        let mut array = ffi::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        let chain = self.chain.as_mut_ptr();
        // SAFETY: the chain lives and is ours alone; `array` describes `candidates`, which the steps reorder and cut in
        // place. No logit is NaN, so their orderings are sound.
        self.done(unsafe { ffi::rkv_sampler_apply(chain, &raw mut array) })?;
        let chosen = usize::try_from(array.selected)
            .ok()
            .filter(|chosen| *chosen < array.size);
        let chosen = chosen
            .and_then(|chosen| self.candidates.get(chosen))
            .ok_or_else(no_choice)?;
        if chosen.logit == f32::NEG_INFINITY {
            return Err(SamplerError::NoCandidate);
        }
        Ok(Token(chosen.id))
    }

    /// Tells the chain about a token that it did not choose itself, such as one of the prompt: penalties count it and
    /// grammars move on.
    ///
    /// # Errors
    /// When a grammar does not allow the token; the sampler is then unchanged.
    pub fn accept(&mut self, token: Token) -> Result<(), SamplerError> {
        self.needs_whole()?;
        let n_vocab = self.model.facts().n_vocab;
        if !self.model.vocab().has(token) {
            return Err(SamplerError::TokenOutOfRange {
                token: token.0,
                n_vocab,
            });
        }
        let chain = self.chain.as_mut_ptr();
        for nth in 0..self.grammars.len() {
            let mut allowed = false;
            // SAFETY: the chain lives and has this step; the token is in range and `allowed` is valid.
            let asked = unsafe {
                let step = ffi::llama_sampler_chain_get(chain, self.grammars[nth]);
                ffi::rkv_sampler_allows(step, token.0, &raw mut allowed)
            };
            self.done(asked)?;
            if !allowed {
                return Err(SamplerError::GrammarRejects { token: token.0 });
            }
        }
        // SAFETY: the chain lives and is ours alone; the token is in range and every grammar allows it.
        self.done(unsafe { ffi::rkv_sampler_accept(chain, token.0) })
    }

    /// Forgets every token: penalties, grammars and random steps start again.
    ///
    /// # Errors
    /// When llama.cpp fails.
    pub fn reset(&mut self) -> Result<(), SamplerError> {
        // SAFETY: the chain lives and is ours alone.
        check(unsafe { ffi::rkv_sampler_reset(self.chain.as_mut_ptr()) })?;
        self.broken = false;
        Ok(())
    }

    /// A copy with the same memory, such as for a second answer to one prompt.
    ///
    /// # Errors
    /// When llama.cpp fails.
    pub fn try_clone(&self) -> Result<Self, SamplerError> {
        self.needs_whole()?;
        let mut out = std::ptr::null_mut();
        // SAFETY: the chain lives; copying only reads it.
        check(unsafe { ffi::rkv_sampler_clone(self.chain.as_ptr(), &raw mut out) })?;
        let chain = Ptr::new(out).ok_or_else(no_sampler)?;
        let (model, grammars) = (self.model, self.grammars.clone());
        Ok(Self {
            chain,
            model,
            grammars,
            candidates: Vec::new(),
            broken: false,
        })
    }

    fn needs_whole(&self) -> Result<(), SamplerError> {
        if self.broken {
            Err(SamplerError::NeedsReset)
        } else {
            Ok(())
        }
    }

    fn done(&mut self, status: ffi::rkv_status) -> Result<(), SamplerError> {
        check(status).map_err(|failure| {
            self.broken = true;
            failure.into()
        })
    }
}

impl Drop for Sampler<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the owner; the chain frees its steps.
        unsafe { ffi::llama_sampler_free(self.chain.as_mut_ptr()) };
    }
}

impl fmt::Debug for Sampler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("grammars", &self.grammars.len())
            .finish_non_exhaustive()
    }
}

#[cold]
fn no_choice() -> SamplerError {
    Failure::new(FailureKind::Refused, "the chain chose nothing").into()
}
