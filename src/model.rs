//! A model: weights, vocabulary and metadata.

use std::ffi::{CStr, CString, c_void};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use crate::backend::Backend;
use crate::context::Context;
use crate::context_params::ContextParams;
use crate::error::{ContextError, Failure, FailureKind, LoadError};
use crate::fingerprint::{self, Fingerprint};
use crate::model_params::{ModelParams, RawModelParams};
use crate::ptr::Ptr;
use crate::status::check;
use crate::vocab::Vocab;
use crate::{ffi, gguf, logging};

/// A loaded model. It is never changed, so one model serves any number of contexts on any threads, which borrow it:
///
/// ```compile_fail
/// # fn demo(model: rolling_kv::Model) -> rolling_kv::Result<()> {
/// let mut context = model.context(&rolling_kv::ContextParams::new(512))?;
/// drop(model); // the context still needs it
/// context.memory().clear()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Model {
    raw: Ptr<ffi::llama_model>,
    facts: Facts,
    fingerprint: [u8; 16],
    /// Making a context may adjust the model's notion of its training length; nothing else reads that meanwhile.
    making_context: Mutex<()>,
    _backend: Backend,
}

// SAFETY: llama.cpp ties a model to no thread; it is freed wherever the last owner drops it.
unsafe impl Send for Model {}
// SAFETY: after loading, llama.cpp only reads a model, with one exception: llama_init_from_model may write the training
// length, which is read again only there. `making_context` serialises those calls, and `facts` holds our own copy.
unsafe impl Sync for Model {}

/// What never changes about a model, read once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) n_vocab: u32,
    pub(crate) n_ctx_train: u32,
    pub(crate) n_embd_out: u32,
    pub(crate) has_encoder: bool,
    pub(crate) has_decoder: bool,
    pub(crate) info: ffi::rkv_model_info,
}

impl Model {
    /// Loads a model from a GGUF file. Of a split model, name the first file; the others are found by their names.
    ///
    /// # Errors
    /// When the file is missing, not GGUF, cut short, or of a kind that llama.cpp cannot load.
    pub fn load(
        backend: &Backend,
        path: impl AsRef<Path>,
        params: &ModelParams,
    ) -> Result<Self, LoadError> {
        Self::load_with_progress(backend, path, params, |_| ControlFlow::Continue(()))
    }

    /// [`load`](Self::load), telling `progress` the share that is done, from 0 to 1. Its answer can stop the loading.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`LoadError::Cancelled`] or [`LoadError::CallbackPanicked`].
    pub fn load_with_progress(
        backend: &Backend,
        path: impl AsRef<Path>,
        params: &ModelParams,
        mut progress: impl FnMut(f32) -> ControlFlow<()>,
    ) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let bad_path = || LoadError::BadPath {
            path: path.to_owned(),
        };
        let c_path = CString::new(path.to_str().ok_or_else(bad_path)?).map_err(|_| bad_path())?;
        let parts = gguf::inspect(path)?;
        let fingerprint =
            fingerprint::of_files(&parts).map_err(|source| LoadError::NotReadable {
                path: path.to_owned(),
                source,
            })?;
        drop(parts);

        let params = params.to_ffi()?;
        Self::finish(*backend, &params, &mut progress, |raw, out| {
            // SAFETY: the path is NUL-terminated, and `raw` with all that it points to outlives the call.
            unsafe { ffi::rkv_model_load(c_path.as_ptr(), raw, out) }
        })
        .map(|model| model.with_fingerprint(fingerprint))
    }

    /// Runs `make` with a progress callback and wraps what it made.
    pub(crate) fn finish(
        backend: Backend,
        params: &RawModelParams,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
        make: impl FnOnce(*const ffi::llama_model_params, *mut *mut ffi::llama_model) -> ffi::rkv_status,
    ) -> Result<Self, LoadError> {
        let mut watcher = Watcher {
            progress,
            stopped: None,
        };
        let mut raw = params.raw;
        raw.progress_callback = Some(on_progress);
        raw.progress_callback_user_data = (&raw mut watcher).cast();

        let mut out = std::ptr::null_mut();
        let (made, log) = logging::capture(|| check(make(&raw const raw, &raw mut out)));
        let owned = Ptr::new(out);
        if let Some(stopped) = watcher.stopped {
            if let Some(mut owned) = owned {
                // SAFETY: the model was made a moment ago and nothing else knows it.
                unsafe { ffi::llama_model_free(owned.as_mut_ptr()) };
            }
            return Err(stopped);
        }
        made.map_err(|failure| with_log(failure, log))?;
        let owned = owned.ok_or_else(|| Failure::new(FailureKind::Refused, "no model was made"))?;
        Self::wrap(backend, owned)
    }

    fn wrap(backend: Backend, mut raw: Ptr<ffi::llama_model>) -> Result<Self, LoadError> {
        match Facts::read(&raw) {
            Ok(facts) => Ok(Self {
                raw,
                facts,
                fingerprint: [0; 16],
                making_context: Mutex::new(()),
                _backend: backend,
            }),
            Err(failure) => {
                // SAFETY: `raw` is owned here and is not used again.
                unsafe { ffi::llama_model_free(raw.as_mut_ptr()) };
                Err(failure.into())
            }
        }
    }

    pub(crate) fn with_fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = fingerprint.0;
        self
    }

    /// Makes a context: a cache and the working memory to run this model.
    ///
    /// # Errors
    /// When the parameters contradict each other or the model, or the memory does not suffice. The model stays usable.
    pub fn context(&self, params: &ContextParams) -> Result<Context<'_>, ContextError> {
        Context::new(self, params)
    }

    /// The vocabulary.
    #[must_use]
    pub fn vocab(&self) -> Vocab<'_> {
        Vocab::new(self)
    }

    /// 16 bytes that tell models with different weights apart: the architecture, every tensor's name, shape and type,
    /// and a sample of its data. A saved state carries them.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 16] {
        self.fingerprint
    }

    /// Tokens of context that the model was trained with.
    #[must_use]
    pub fn n_ctx_train(&self) -> u32 {
        self.facts.n_ctx_train
    }

    /// Length of a hidden state.
    #[must_use]
    pub fn n_embd(&self) -> u32 {
        self.count(ffi::llama_model_n_embd)
    }

    /// Length of an embedding that comes out of [`Context::embeddings`].
    #[must_use]
    pub fn n_embd_out(&self) -> u32 {
        self.facts.n_embd_out
    }

    /// Number of layers.
    #[must_use]
    pub fn n_layer(&self) -> u32 {
        self.count(ffi::llama_model_n_layer)
    }

    /// Number of query heads of the first layer.
    #[must_use]
    pub fn n_head(&self) -> u32 {
        self.count(ffi::llama_model_n_head)
    }

    /// Number of K and V heads of the first layer.
    #[must_use]
    pub fn n_head_kv(&self) -> u32 {
        self.count(ffi::llama_model_n_head_kv)
    }

    /// Tokens that a sliding-window layer looks back; 0 without such layers.
    #[must_use]
    pub fn n_swa(&self) -> u32 {
        self.count(ffi::llama_model_n_swa)
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        // SAFETY: the model lives; the function only reads it.
        unsafe { ffi::llama_model_size(self.raw.as_ptr()) }
    }

    /// Number of weights.
    #[must_use]
    pub fn n_params(&self) -> u64 {
        // SAFETY: the model lives; the function only reads it.
        unsafe { ffi::llama_model_n_params(self.raw.as_ptr()) }
    }

    /// Whether it keeps a state per sequence instead of a cache of tokens.
    #[must_use]
    pub fn is_recurrent(&self) -> bool {
        // SAFETY: the model lives; the function only reads it.
        unsafe { ffi::llama_model_is_recurrent(self.raw.as_ptr()) }
    }

    /// Whether it keeps both a state per sequence and a cache of tokens.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        // SAFETY: the model lives; the function only reads it.
        unsafe { ffi::llama_model_is_hybrid(self.raw.as_ptr()) }
    }

    /// Whether its input goes through [`Context::encode`] first.
    #[must_use]
    pub fn has_encoder(&self) -> bool {
        self.facts.has_encoder
    }

    /// Whether [`Context::decode`] produces text.
    #[must_use]
    pub fn has_decoder(&self) -> bool {
        self.facts.has_decoder
    }

    /// A line for people, such as `llama 256M Q4_1`.
    #[must_use]
    pub fn description(&self) -> String {
        let model = self.raw.as_ptr();
        // SAFETY: the model lives; at most `len` bytes are written to `text`.
        self.text(|text, len| unsafe { ffi::llama_model_desc(model, text, len) })
            .unwrap_or_default()
    }

    /// The metadata value of `key` as text; `None` when there is none, or it is an array.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        let model = self.raw.as_ptr();
        // SAFETY: the model lives, `key` is NUL-terminated and at most `len` bytes are written to `text`.
        self.text(|text, len| unsafe {
            ffi::llama_model_meta_val_str(model, key.as_ptr(), text, len)
        })
    }

    /// Every metadata entry that is not an array, as text.
    #[must_use]
    pub fn metadata_entries(&self) -> Vec<(String, String)> {
        let model = self.raw.as_ptr();
        // SAFETY: the model lives; the function only reads it.
        let count = unsafe { ffi::llama_model_meta_count(model) };
        let entry = |index| {
            // SAFETY: the model lives, `index` is below the count and at most `len` bytes are written to `text`.
            let key = self.text(|text, len| unsafe {
                ffi::llama_model_meta_key_by_index(model, index, text, len)
            })?;
            // SAFETY: as above.
            let value = self.text(|text, len| unsafe {
                ffi::llama_model_meta_val_str_by_index(model, index, text, len)
            })?;
            Some((key, value))
        };
        (0..count).filter_map(entry).collect()
    }

    /// The chat template that the model brings; `name` picks one of several. `None` when there is none.
    #[must_use]
    pub fn chat_template(&self, name: Option<&str>) -> Option<String> {
        let name = name.map(CString::new).transpose().ok()?;
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: the model lives; `name` is NULL or NUL-terminated.
        let text = unsafe { ffi::llama_model_chat_template(self.raw.as_ptr(), name) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the text belongs to the model, which lives, and is copied here.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    pub(crate) fn as_ptr(&self) -> *const ffi::llama_model {
        self.raw.as_ptr()
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Runs `make`, alone, with the pointer that llama_init_from_model wants.
    pub(crate) fn with_context_lock<T>(&self, make: impl FnOnce(*mut ffi::llama_model) -> T) -> T {
        let _alone = self
            .making_context
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        make(self.raw.as_ptr_unshared())
    }

    fn count(&self, get: unsafe extern "C" fn(*const ffi::llama_model) -> i32) -> u32 {
        // SAFETY: every caller passes one of llama.cpp's getters, which only read the model, and it lives.
        u32::try_from(unsafe { get(self.raw.as_ptr()) }).unwrap_or(0)
    }

    /// Calls a getter that answers the length of a text and writes at most as much as fits, with a NUL at the end.
    fn text(&self, get: impl Fn(*mut std::ffi::c_char, usize) -> i32) -> Option<String> {
        let len = usize::try_from(get(std::ptr::null_mut(), 0)).ok()?;
        let mut bytes = vec![0u8; len + 1];
        let written = usize::try_from(get(bytes.as_mut_ptr().cast(), bytes.len())).ok()?;
        bytes.truncate(written.min(len));
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: this is the owner, and no context, sampler or vocabulary that borrows the model is left.
        unsafe { ffi::llama_model_free(self.raw.as_mut_ptr()) };
    }
}

impl Facts {
    fn read(model: &Ptr<ffi::llama_model>) -> Result<Self, Failure> {
        // SAFETY: the struct is plain numbers and flags, for which all zeroes is a value.
        let mut info: ffi::rkv_model_info = unsafe { std::mem::zeroed() };
        // SAFETY: the model lives and `info` is valid for the call to fill.
        check(unsafe { ffi::rkv_model_info_get(model.as_ptr(), &raw mut info) })?;
        let positive = |value: i32| u32::try_from(value).unwrap_or(0);
        // SAFETY: the model lives; each function only reads it.
        unsafe {
            let raw = model.as_ptr();
            Ok(Self {
                n_vocab: positive(ffi::llama_vocab_n_tokens(ffi::llama_model_get_vocab(raw))),
                n_ctx_train: positive(ffi::llama_model_n_ctx_train(raw)),
                n_embd_out: positive(ffi::llama_model_n_embd_out(raw)),
                has_encoder: ffi::llama_model_has_encoder(raw),
                has_decoder: ffi::llama_model_has_decoder(raw),
                info,
            })
        }
    }
}

/// What the progress callback works with, for the time of one load.
struct Watcher<'a> {
    progress: &'a mut dyn FnMut(f32) -> ControlFlow<()>,
    stopped: Option<LoadError>,
}

unsafe extern "C" fn on_progress(done: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `user_data` is the Watcher of the running Model::finish, which is on this thread's stack; loading calls
    // this from that thread only.
    let watcher = unsafe { &mut *user_data.cast::<Watcher<'_>>() };
    if watcher.stopped.is_some() {
        return false;
    }
    watcher.stopped = match catch_unwind(AssertUnwindSafe(|| (watcher.progress)(done))) {
        Ok(ControlFlow::Continue(())) => None,
        Ok(ControlFlow::Break(())) => Some(LoadError::Cancelled),
        Err(panic) => Some(LoadError::CallbackPanicked {
            message: panic_message(&*panic),
        }),
    };
    watcher.stopped.is_none()
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Adds what was logged, which is where llama.cpp leaves its reasons.
pub(crate) fn with_log(failure: Failure, log: String) -> Failure {
    // llama.cpp answers "no" to whatever went wrong; what it logs tells an allocation from the rest.
    let no_memory = ["failed to allocate", "unable to allocate"]
        .iter()
        .any(|words| log.contains(words));
    match (failure.kind(), log.is_empty()) {
        (_, true) => failure,
        (FailureKind::Refused, false) if no_memory => Failure::new(FailureKind::NoMemory, log),
        (FailureKind::Refused, false) => Failure::new(FailureKind::Refused, log),
        (kind, false) => Failure::new(kind, format!("{failure} ({log})")),
    }
}
