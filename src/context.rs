//! A context: a model with a cache, and the working memory to run it.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch::Batch;
use crate::context_checks::Checked;
use crate::context_params::{ContextParams, KvType, Pooling};
use crate::error::{ContextError, Failure, FailureKind, OutputError, SequenceError};
use crate::logits::Logits;
use crate::memory::Memory;
use crate::model::{Model, with_log};
use crate::ptr::Ptr;
use crate::status::check;
use crate::threads::Threads;
use crate::{ffi, logging};

/// Most threads that ggml can run.
pub(crate) const MAX_THREADS: u32 = ffi::GGML_MAX_N_THREADS;

/// A model with a cache. It holds a number of sequences; [`decode`](Self::decode) runs tokens at their ends, and
/// [`logits`](Self::logits) reads what comes next.
///
/// # Threads
/// A context can be sent to another thread, but not shared: every call changes it, reading outputs too.
///
/// ```compile_fail
/// fn is_sync<T: Sync>() {}
/// is_sync::<rolling_kv::Context<'static>>();
/// ```
pub struct Context<'model> {
    pub(crate) raw: Ptr<ffi::llama_context>,
    pub(crate) model: &'model Model,
    pub(crate) limits: Limits,
    pub(crate) memory: ffi::rkv_memory_info,
    pub(crate) outputs: Outputs,
    pub(crate) scratch: crate::decode_checks::Scratch,
    pub(crate) spare: Batch,
    pub(crate) abort: Arc<AtomicBool>,
    pub(crate) encoded: bool,
    pub(crate) poisoned: bool,
    /// Freed after `raw`, which works with them.
    _threads: Threads,
}

// SAFETY: llama.cpp ties a context to no thread: its worker threads belong to the pool it holds, and nothing in it is
// thread-local. The model it refers to is Sync. It is not Sync: llama.cpp takes no locks, and even reading outputs
// reorders them in place.
unsafe impl Send for Context<'_> {}

/// What a context was made with, as llama.cpp rounded it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) n_ctx: u32,
    pub(crate) n_ctx_seq: u32,
    pub(crate) n_batch: u32,
    pub(crate) n_ubatch: u32,
    pub(crate) n_seq_max: u32,
    pub(crate) causal: bool,
    pub(crate) embeddings: bool,
    pub(crate) pooling: Pooling,
    pub(crate) type_k: KvType,
    pub(crate) type_v: KvType,
}

/// Which tokens of the last batch have an output.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    marks: Vec<i8>,
    valid: bool,
    /// Whether llama.cpp has put the rows into the batch's order. It does so once, before the first row is handed out.
    settled: Cell<bool>,
}

impl Outputs {
    pub(crate) fn invalidate(&mut self) {
        self.valid = false;
    }

    pub(crate) fn set(&mut self, marks: &[i8], all: bool) {
        self.marks.clear();
        if all {
            self.marks.resize(marks.len(), 1);
        } else {
            self.marks.extend_from_slice(marks);
        }
        self.valid = true;
        self.settled.set(false);
    }

    fn require(&self, index: usize) -> Result<(), OutputError> {
        if !self.valid {
            return Err(OutputError::NothingDecoded);
        }
        match self.marks.get(index) {
            None => Err(OutputError::OutOfRange {
                index,
                len: self.marks.len(),
            }),
            Some(0) => Err(OutputError::NotAnOutput { index }),
            Some(_) => Ok(()),
        }
    }

    fn last(&self) -> Result<usize, OutputError> {
        if !self.valid {
            return Err(OutputError::NothingDecoded);
        }
        self.marks
            .iter()
            .rposition(|mark| *mark != 0)
            .ok_or(OutputError::NotAnOutput {
                index: self.marks.len() - 1,
            })
    }
}

impl<'model> Context<'model> {
    pub(crate) fn new(model: &'model Model, params: &ContextParams) -> Result<Self, ContextError> {
        Self::watched(model, params, (None, std::ptr::null_mut()))
    }

    /// The same with a function that llama.cpp calls for each node it computes, and what it is given; both must outlive the context.
    pub(crate) fn watched(
        model: &'model Model,
        params: &ContextParams,
        (eval, user): (ffi::ggml_backend_sched_eval_callback, *mut c_void),
    ) -> Result<Self, ContextError> {
        let checked = Checked::new(model, params)?;
        let abort = Arc::new(AtomicBool::new(false));
        let mut raw_params = checked.raw;
        if let Some(rolling) = &checked.rolling {
            raw_params.rkv = rolling.to_ffi();
        }
        raw_params.cb_eval = eval;
        raw_params.cb_eval_user_data = user;
        raw_params.abort_callback = Some(is_aborted);
        // The context keeps the Arc, so the flag outlives llama.cpp's pointer to it.
        raw_params.abort_callback_data = Arc::as_ptr(&abort).cast_mut().cast();

        let mut out = std::ptr::null_mut();
        let make = |raw_model| {
            // SAFETY: the model lives and is ours alone here; the parameters and what they point to are valid.
            let status =
                unsafe { ffi::rkv_context_new(raw_model, &raw const raw_params, &raw mut out) };
            check(status)
        };
        let (made, log) = logging::capture(|| model.with_context_lock(make));
        made.map_err(|failure| with_log(failure, log))?;
        let raw = Ptr::new(out)
            .ok_or_else(|| Failure::new(FailureKind::Refused, "no context was made"))?;

        // From here on, dropping the half-made context frees what there is.
        let mut context = Self {
            limits: Limits::read(&raw, &checked, params),
            raw,
            model,
            // SAFETY: plain numbers and flags, for which all zeroes is a value.
            memory: unsafe { std::mem::zeroed() },
            outputs: Outputs::default(),
            scratch: crate::decode_checks::Scratch::default(),
            spare: Batch::new(),
            abort,
            encoded: false,
            poisoned: false,
            _threads: Threads::default(),
        };
        context._threads = Threads::attach(&mut context.raw, params)?;
        // SAFETY: the context lives and the struct is valid for the call to fill.
        check(unsafe {
            ffi::rkv_memory_info_get(context.raw.as_mut_ptr(), &raw mut context.memory)
        })?;
        Ok(context)
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &'model Model {
        self.model
    }

    /// Tokens that all sequences together can hold, as llama.cpp rounded it.
    #[must_use]
    pub fn n_ctx(&self) -> u32 {
        self.limits.n_ctx
    }

    /// Tokens that one sequence can hold.
    #[must_use]
    pub fn n_ctx_seq(&self) -> u32 {
        self.limits.n_ctx_seq
    }

    /// Tokens that one batch can hold.
    #[must_use]
    pub fn n_batch(&self) -> u32 {
        self.limits.n_batch
    }

    /// Tokens that are computed at once.
    #[must_use]
    pub fn n_ubatch(&self) -> u32 {
        self.limits.n_ubatch
    }

    /// Number of sequences.
    #[must_use]
    pub fn n_seq_max(&self) -> u32 {
        self.limits.n_seq_max
    }

    /// Whether attention is computed in one fused step, which [`FlashAttention::Auto`](crate::FlashAttention::Auto) left
    /// open.
    #[must_use]
    pub fn uses_flash_attention(&self) -> bool {
        self.memory.flash_attn
    }

    /// How embeddings are pooled.
    #[must_use]
    pub fn pooling(&self) -> Pooling {
        self.limits.pooling
    }

    /// The positions that a sequence holds for certain, first and last; `None` when it is empty. A sliding-window cache
    /// forgets the oldest ones, and a state per sequence stands for its last one only.
    ///
    /// # Errors
    /// When there is no such sequence.
    pub fn positions(&self, seq: i32) -> Result<Option<RangeInclusive<i32>>, SequenceError> {
        self.needs_sequence(seq)?;
        Ok(self.positions_of(seq))
    }

    /// The logits after the token at `index` of the last batch, one per token of the vocabulary.
    ///
    /// # Errors
    /// When that token was not marked as an output, or the last batch failed.
    pub fn logits(&self, index: usize) -> Result<Logits<'_>, OutputError> {
        self.outputs.require(index)?;
        if !self.model.facts().info.has_output {
            return Err(OutputError::NoLogits);
        }
        self.settle();
        // SAFETY: the rows are settled, so this only looks up an address. `index` fits, as the batch did.
        let row = unsafe { ffi::llama_get_logits_ith(self.raw.as_ptr_unshared(), index as i32) };
        // SAFETY: the row is what llama.cpp wrote for this token.
        unsafe { self.row(row, self.model.facts().n_vocab) }.map(Logits::new)
    }

    /// The logits after the last token of the last batch that was marked as an output.
    ///
    /// # Errors
    /// When there was none, or the last batch failed.
    pub fn last_logits(&self) -> Result<Logits<'_>, OutputError> {
        self.logits(self.outputs.last()?)
    }

    /// The embedding of the token at `index` of the last batch, [`Model::n_embd_out`] numbers.
    ///
    /// # Errors
    /// When the context makes no embeddings, pools them, or the last batch failed.
    pub fn embeddings(&self, index: usize) -> Result<&[f32], OutputError> {
        self.outputs.require(index)?;
        if !self.limits.embeddings {
            return Err(OutputError::EmbeddingsOff);
        }
        if self.limits.pooling != Pooling::None {
            return Err(OutputError::Pooled);
        }
        self.settle();
        // SAFETY: as in `logits`.
        let row =
            unsafe { ffi::llama_get_embeddings_ith(self.raw.as_ptr_unshared(), index as i32) };
        // SAFETY: the row is what llama.cpp wrote for this token.
        unsafe { self.row(row, self.model.facts().n_embd_out) }
    }

    /// The pooled embedding of a sequence of the last batch: [`Model::n_embd_out`] numbers, or with [`Pooling::Rank`] one
    /// per class.
    ///
    /// # Errors
    /// When the context does not pool, the sequence was not in the last batch, or the last batch failed.
    pub fn sequence_embedding(&self, seq: i32) -> Result<&[f32], OutputError> {
        if !self.outputs.valid {
            return Err(OutputError::NothingDecoded);
        }
        if !self.limits.embeddings {
            return Err(OutputError::EmbeddingsOff);
        }
        let len = match self.limits.pooling {
            Pooling::None => return Err(OutputError::NotPooled),
            Pooling::Rank => self.model.facts().info.n_cls_out,
            _ => self.model.facts().n_embd_out,
        };
        self.settle();
        // SAFETY: looks the sequence up in a map and answers NULL when it is not there.
        let row = unsafe { ffi::llama_get_embeddings_seq(self.raw.as_ptr_unshared(), seq) };
        // SAFETY: the vector in that map has as many numbers as the pooling gives.
        unsafe { self.row(row, len) }.map_err(|_| OutputError::NoSuchSequence { seq })
    }

    /// The sequences, to be edited. Borrows the context, so nothing runs meanwhile.
    pub fn memory(&mut self) -> Memory<'_, 'model> {
        Memory::new(self)
    }

    /// A handle that stops a running [`decode`](Self::decode) from another thread. It works for layers on the CPU.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle {
            flag: Arc::clone(&self.abort),
        }
    }

    pub(crate) fn needs_sequence(&self, seq: i32) -> Result<(), SequenceError> {
        if self.poisoned {
            return Err(SequenceError::Poisoned);
        }
        if u32::try_from(seq).is_ok_and(|seq| seq < self.limits.n_seq_max) {
            Ok(())
        } else {
            Err(SequenceError::OutOfRange {
                seq,
                n_seq_max: self.limits.n_seq_max,
            })
        }
    }

    /// `seq` must be one of the context's.
    pub(crate) fn positions_of(&self, seq: i32) -> Option<RangeInclusive<i32>> {
        // SAFETY: the context lives, `seq` is in range, and both functions only read; without memory they answer -1.
        let (first, last) = unsafe {
            let memory = ffi::llama_get_memory(self.raw.as_ptr());
            (
                ffi::llama_memory_seq_pos_min(memory, seq),
                ffi::llama_memory_seq_pos_max(memory, seq),
            )
        };
        (first >= 0 && last >= first).then_some(first..=last)
    }

    /// Waits for the computation and lets llama.cpp put the output rows in order, once.
    fn settle(&self) {
        if !self.outputs.settled.replace(true) {
            // SAFETY: this is the first access since the batch ran, so no slice of the outputs exists that the
            // reordering could change; the context is not Sync, so nothing else calls it meanwhile.
            unsafe { ffi::llama_get_logits(self.raw.as_ptr_unshared()) };
        }
    }

    /// # Safety
    /// `row` must be NULL or point to `len` numbers that stay unchanged until the next `&mut self` call.
    unsafe fn row(&self, row: *const f32, len: u32) -> Result<&[f32], OutputError> {
        if row.is_null() {
            return Err(OutputError::NothingDecoded);
        }
        // SAFETY: by contract; the slice borrows `self`, and only `&mut self` calls run batches.
        Ok(unsafe { std::slice::from_raw_parts(row, len as usize) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the owner; nothing that borrows the context is left, and the threads live until after this.
        unsafe { ffi::llama_free(self.raw.as_mut_ptr()) };
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("model", &self.model.description())
            .field("limits", &self.limits)
            .finish()
    }
}

impl Limits {
    fn read(raw: &Ptr<ffi::llama_context>, checked: &Checked, params: &ContextParams) -> Self {
        // SAFETY: the context lives; every function only reads it.
        unsafe {
            let raw = raw.as_ptr();
            Self {
                n_ctx: ffi::llama_n_ctx(raw),
                n_ctx_seq: ffi::llama_n_ctx_seq(raw),
                n_batch: ffi::llama_n_batch(raw),
                n_ubatch: ffi::llama_n_ubatch(raw),
                n_seq_max: ffi::llama_n_seq_max(raw),
                causal: checked.causal,
                embeddings: params.embeddings,
                pooling: Pooling::from_ffi(ffi::llama_pooling_type(raw)),
                type_k: params.type_k,
                type_v: params.type_v,
            }
        }
    }
}

/// Stops a running [`Context::decode`] from another thread.
#[derive(Debug, Clone)]
pub struct AbortHandle {
    flag: Arc<AtomicBool>,
}

impl AbortHandle {
    /// Makes the running [`Context::decode`], or else the next one, answer
    /// [`DecodeError::Aborted`](crate::DecodeError::Aborted). One call stops one run.
    pub fn abort(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

unsafe extern "C" fn is_aborted(flag: *mut c_void) -> bool {
    // SAFETY: `flag` points into the Arc that the context keeps for as long as llama.cpp can call this.
    unsafe { &*flag.cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
