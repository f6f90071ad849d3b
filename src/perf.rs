//! How long the work took.

use std::time::Duration;

use crate::context::Context;
use crate::ffi;

/// Counters of a context since it was made or [`reset`](Context::reset_perf).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Perf {
    /// From the start of loading the model to the end of the first batch.
    pub load_time: Duration,
    /// Tokens that were run several at once.
    pub prompt_tokens: u64,
    /// Time for those.
    pub prompt_time: Duration,
    /// Tokens that were run one at a time.
    pub decode_tokens: u64,
    /// Time for those.
    pub decode_time: Duration,
    /// Batches that could use the previous batch's graph again.
    pub graphs_reused: u64,
}

impl Perf {
    /// Prompt tokens per second; `None` before there were any.
    #[must_use]
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Decoded tokens per second; `None` before there were any.
    #[must_use]
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decode_tokens, self.decode_time)
    }
}

fn rate(tokens: u64, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

impl Context<'_> {
    /// The counters, after waiting for what is still being computed. Tokens run one at a time without looking at their
    /// output in between count as a prompt.
    #[must_use]
    pub fn perf(&self) -> Perf {
        // SAFETY: waiting and reading counters changes nothing that a borrow of the outputs could see, and the context is
        // not Sync, so nothing else calls it meanwhile.
        let raw = unsafe {
            ffi::llama_synchronize(self.raw.as_ptr_unshared());
            ffi::llama_perf_context(self.raw.as_ptr())
        };
        let time = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        // llama.cpp answers at least 1 for a count, also when nothing ran; the time tells.
        let count = |count: i32, ms: f64| {
            if ms > 0.0 {
                u64::try_from(count).unwrap_or(0)
            } else {
                0
            }
        };
        Perf {
            load_time: time(raw.t_load_ms),
            prompt_tokens: count(raw.n_p_eval, raw.t_p_eval_ms),
            prompt_time: time(raw.t_p_eval_ms),
            decode_tokens: count(raw.n_eval, raw.t_eval_ms),
            decode_time: time(raw.t_eval_ms),
            graphs_reused: u64::try_from(raw.n_reused).unwrap_or(0),
        }
    }

    /// Sets the counters to zero, except the load time.
    pub fn reset_perf(&mut self) {
        // SAFETY: the context lives and is ours alone.
        unsafe {
            ffi::llama_synchronize(self.raw.as_mut_ptr());
            ffi::llama_perf_context_reset(self.raw.as_mut_ptr());
        }
    }
}
