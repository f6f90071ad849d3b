//! What must hold before llama.cpp is asked for a context. Most of it would otherwise end the process.

use crate::context::MAX_THREADS;
use crate::context_params::{Attention, ContextParams, FlashAttention, KvType, Pooling};
use crate::error::ContextError;
use crate::model::Model;
use crate::status::check;
use crate::{ffi, host, rolling};

/// llama.cpp rounds the context up to this many tokens.
const CTX_STEP: u32 = 256;

/// Positions are 32-bit signed numbers.
const MAX_CTX: u32 = i32::MAX as u32 / CTX_STEP * CTX_STEP;

/// Parameters that were checked.
pub(crate) struct Checked {
    pub(crate) raw: ffi::llama_context_params,
    pub(crate) causal: bool,
    pub(crate) rolling: Option<rolling::Checked>,
}

impl Checked {
    pub(crate) fn new(model: &Model, params: &ContextParams) -> Result<Self, ContextError> {
        let info = &model.facts().info;
        if info.vocab_only {
            return Err(ContextError::VocabOnly);
        }
        let n_ctx = if params.n_ctx == 0 {
            model.n_ctx_train()
        } else {
            params.n_ctx
        };
        sizes(params, n_ctx)?;
        numbers(params)?;
        cache_types(model, params)?;

        let rolling = params
            .rolling_kv
            .as_ref()
            .map(|spill| spill.check(model, params))
            .transpose()?;
        if params.pooling == Some(Pooling::Rank) && !info.has_classifier {
            return Err(ContextError::NoClassifier);
        }
        if info.position_buckets && params.n_seq_max > 1 && !params.kv_unified {
            return Err(ContextError::EncoderNeedsUnified {
                n_seq_max: params.n_seq_max,
            });
        }
        let causal = params
            .attention
            .map_or(info.causal, |attention| attention == Attention::Causal);
        let raw = memory(model, params, n_ctx)?;
        Ok(Self {
            raw,
            causal,
            rolling,
        })
    }
}

fn sizes(params: &ContextParams, n_ctx: u32) -> Result<(), ContextError> {
    let named = [
        ("n_ctx", n_ctx),
        ("n_batch", params.n_batch),
        ("n_ubatch", params.n_ubatch),
        ("n_seq_max", params.n_seq_max),
        ("threads", params.threads_for_token()),
        ("threads_batch", params.threads_for_batch()),
    ];
    if let Some((option, _)) = named.iter().find(|(_, size)| *size == 0) {
        return Err(ContextError::Zero { option });
    }
    // SAFETY: takes nothing and answers a constant.
    let max = unsafe { ffi::llama_max_parallel_sequences() } as u32;
    if params.n_seq_max > max {
        return Err(ContextError::TooManySequences {
            asked: params.n_seq_max,
            max,
        });
    }
    // llama.cpp reserves one output row per sequence and asserts that a batch can have that many.
    if params.n_batch < params.n_seq_max {
        return Err(ContextError::BatchBelowSequences {
            n_batch: params.n_batch,
            n_seq_max: params.n_seq_max,
        });
    }
    for (option, asked) in [
        ("threads", params.threads_for_token()),
        ("threads_batch", params.threads_for_batch()),
    ] {
        if asked > MAX_THREADS {
            return Err(ContextError::TooManyThreads {
                option,
                asked,
                max: MAX_THREADS,
            });
        }
    }
    Ok(())
}

fn numbers(params: &ContextParams) -> Result<(), ContextError> {
    for (option, value) in [
        ("rope_freq_base", params.rope_freq_base),
        ("rope_freq_scale", params.rope_freq_scale),
    ] {
        if !value.is_finite() || value < 0.0 {
            let expected = "use a number above 0, or 0 for the model's own";
            return Err(ContextError::BadNumber {
                option,
                value,
                expected,
            });
        }
    }
    Ok(())
}

fn cache_types(model: &Model, params: &ContextParams) -> Result<(), ContextError> {
    let (type_k, type_v) = (params.type_k, params.type_v);
    if model.facts().info.mla && type_k != type_v {
        return Err(ContextError::TypesMustBeEqual { type_k, type_v });
    }
    if type_v.is_quantised() && params.flash_attention == FlashAttention::Off {
        return Err(ContextError::QuantisedVWithoutFlashAttention { type_v });
    }
    // SAFETY: plain numbers and flags, for which all zeroes is a value.
    let mut mismatch: ffi::rkv_kv_mismatch = unsafe { std::mem::zeroed() };
    // SAFETY: the model lives and `mismatch` is valid for the call to fill.
    check(unsafe {
        ffi::rkv_kv_types_check(
            model.as_ptr(),
            type_k.to_ffi(),
            type_v.to_ffi(),
            &raw mut mismatch,
        )
    })?;
    if mismatch.found {
        let (option, kv_type) = if mismatch.is_v {
            ("type_v", type_v)
        } else {
            ("type_k", type_k)
        };
        return Err(head_error(option, kv_type, &mismatch));
    }
    Ok(())
}

fn head_error(
    option: &'static str,
    kv_type: KvType,
    mismatch: &ffi::rkv_kv_mismatch,
) -> ContextError {
    ContextError::HeadNotDivisible {
        option,
        kv_type,
        block_size: mismatch.block_size,
        head_dim: mismatch.head_dim,
        layer: mismatch.layer,
    }
}

/// Compares what the context needs at least with what the host has left: a cache that is allocated but does not fit is
/// found out by the kernel, which ends the process.
fn memory(
    model: &Model,
    params: &ContextParams,
    n_ctx: u32,
) -> Result<ffi::llama_context_params, ContextError> {
    let rounded = n_ctx.min(MAX_CTX).next_multiple_of(CTX_STEP);
    let mut raw = params.to_ffi(rounded);
    let mut need = need(model, &raw)?;
    if n_ctx > MAX_CTX {
        let cache_bytes = u128::from(need.cache_bytes) * u128::from(n_ctx) / u128::from(rounded);
        let cache_bytes = u64::try_from(cache_bytes).unwrap_or(u64::MAX);
        return Err(ContextError::TooLong {
            n_ctx,
            max: MAX_CTX,
            cache_bytes,
        });
    }
    // Only what a context can use: a causal one never takes more tokens at once than it holds.
    if model.facts().info.causal && params.attention != Some(Attention::NonCausal) {
        raw.n_batch = raw.n_batch.min(rounded);
        raw.n_ubatch = raw.n_ubatch.min(raw.n_batch);
        need = self::need(model, &raw)?;
    }
    let total = need
        .cache_bytes
        .saturating_add(need.cells_bytes)
        .saturating_add(need.compute_bytes);
    match host::available_bytes() {
        Some(available_bytes) if total > available_bytes => Err(ContextError::NotEnoughMemory {
            n_ctx: rounded,
            cache_bytes: need.cache_bytes,
            cells_bytes: need.cells_bytes,
            compute_bytes: need.compute_bytes,
            available_bytes,
        }),
        _ => Ok(raw),
    }
}

fn need(
    model: &Model,
    raw: &ffi::llama_context_params,
) -> Result<ffi::rkv_context_need, ContextError> {
    let mut need = ffi::rkv_context_need {
        cache_bytes: 0,
        cells_bytes: 0,
        compute_bytes: 0,
    };
    // SAFETY: the model and the parameters live and `need` is valid for the call to fill.
    check(unsafe { ffi::rkv_context_need_get(model.as_ptr(), raw, &raw mut need) })?;
    Ok(need)
}
