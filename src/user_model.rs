//! A model made in memory, from metadata and a function that fills its tensors.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::ops::ControlFlow;

use crate::backend::Backend;
use crate::error::{Failure, FailureKind, LoadError};
use crate::fingerprint::Collector;
use crate::model::Model;
use crate::model_params::ModelParams;
use crate::status::check;
use crate::tensor_fill::{Filler, Problem, TensorSlot, TensorType, on_tensor};
use crate::{ffi, host};

/// Longest name of a tensor that ggml keeps.
const MAX_NAME_BYTES: usize = ffi::GGML_MAX_NAME as usize - 1;

/// Makes a [`Model`] without a file: describe it, then fill its tensors. Meant for tests, with small random weights of
/// any architecture.
#[derive(Debug)]
pub struct UserModel {
    metadata: Metadata,
    collector_input: Vec<(String, Vec<u8>)>,
    problem: Option<LoadError>,
}

impl UserModel {
    /// Begins a model of this architecture, such as `llama`.
    #[must_use]
    pub fn new(architecture: &str) -> Self {
        let model = Self {
            metadata: Metadata::new(),
            collector_input: Vec::new(),
            problem: None,
        };
        model.text("general.architecture", architecture)
    }

    /// Sets an unsigned number.
    #[must_use]
    pub fn u32(self, key: &str, value: u32) -> Self {
        self.set(key, &value.to_le_bytes(), |metadata, key| {
            // SAFETY: `metadata` is owned here and `key` is a NUL-terminated text that is not empty.
            unsafe { ffi::gguf_set_val_u32(metadata, key, value) }
        })
    }

    /// Sets a fraction.
    #[must_use]
    pub fn f32(self, key: &str, value: f32) -> Self {
        self.set(key, &value.to_le_bytes(), |metadata, key| {
            // SAFETY: `metadata` is owned here and `key` is a NUL-terminated text that is not empty.
            unsafe { ffi::gguf_set_val_f32(metadata, key, value) }
        })
    }

    /// Sets a flag.
    #[must_use]
    pub fn flag(self, key: &str, value: bool) -> Self {
        self.set(key, &[u8::from(value)], |metadata, key| {
            // SAFETY: `metadata` is owned here and `key` is a NUL-terminated text that is not empty.
            unsafe { ffi::gguf_set_val_bool(metadata, key, value) }
        })
    }

    /// Sets a text.
    #[must_use]
    pub fn text(mut self, key: &str, value: &str) -> Self {
        let Ok(text) = CString::new(value) else {
            self.complain(key, "the text holds a NUL byte");
            return self;
        };
        self.set(key, value.as_bytes(), |metadata, key| {
            // SAFETY: `metadata` is owned here; `key` is not empty and both texts are NUL-terminated.
            unsafe { ffi::gguf_set_val_str(metadata, key, text.as_ptr()) }
        })
    }

    /// Sets an array of texts.
    #[must_use]
    pub fn texts(mut self, key: &str, values: &[String]) -> Self {
        let Ok(texts) = values
            .iter()
            .map(|value| CString::new(value.as_str()))
            .collect::<Result<Vec<_>, _>>()
        else {
            self.complain(key, "one of the texts holds a NUL byte");
            return self;
        };
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        self.set(key, &[], |metadata, key| {
            // SAFETY: `metadata` is owned here; `pointers` holds as many NUL-terminated texts as it has entries.
            unsafe { ffi::gguf_set_arr_str(metadata, key, pointers.as_mut_ptr(), pointers.len()) }
        })
    }

    /// Sets an array of unsigned numbers.
    #[must_use]
    pub fn u32s(self, key: &str, values: &[u32]) -> Self {
        self.array(key, values, ffi::GGUF_TYPE_UINT32)
    }

    /// Sets an array of signed numbers.
    #[must_use]
    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        self.array(key, values, ffi::GGUF_TYPE_INT32)
    }

    /// Sets an array of fractions.
    #[must_use]
    pub fn f32s(self, key: &str, values: &[f32]) -> Self {
        self.array(key, values, ffi::GGUF_TYPE_FLOAT32)
    }

    /// Stores this tensor in another type than 32-bit floating point.
    #[must_use]
    pub fn tensor_type(mut self, name: &str, kind: TensorType) -> Self {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            self.complain(name, "a tensor's name has 1 to 63 bytes");
            return self;
        }
        // SAFETY: `metadata` is owned here and the key is NUL-terminated; this only searches.
        let name_c = CString::new(name)
            .ok()
            .filter(|name| unsafe { ffi::gguf_find_tensor(self.metadata.0, name.as_ptr()) } < 0);
        let Some(name_c) = name_c else {
            self.complain(
                name,
                "the tensor is named twice, or its name holds a NUL byte",
            );
            return self;
        };
        // SAFETY: `metadata` is owned here, the name is new, short enough and NUL-terminated.
        let set = check(unsafe {
            ffi::rkv_metadata_tensor_type_set(self.metadata.0, name_c.as_ptr(), kind.to_ffi())
        });
        if let Err(failure) = set {
            self.complain(name, failure.text());
        }
        self
    }

    /// Makes the model. `fill` is called once per tensor, with its values to be filled, all zero at first.
    ///
    /// # Errors
    /// When the metadata is incomplete or contradictory, when the tensors do not fit into memory, or when `fill` panics.
    pub fn build(
        mut self,
        backend: &Backend,
        params: &ModelParams,
        mut fill: impl FnMut(&TensorSlot, &mut [f32]),
    ) -> Result<Model, LoadError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let params = params.to_ffi()?;
        let mut collector = Collector::new();
        for (key, value) in &self.collector_input {
            collector.field(key.as_bytes());
            collector.field(value);
        }
        let mut filler = Filler {
            fill: &mut fill,
            tensors: BTreeMap::new(),
            left_bytes: host::available_bytes(),
            problem: None,
        };
        let available = filler.left_bytes;
        let user_data: *mut c_void = (&raw mut filler).cast();
        let metadata = self.metadata.0;
        let made = Model::finish(
            *backend,
            &params,
            &mut |_| ControlFlow::Continue(()),
            |raw, out| {
                // SAFETY: `metadata`, `filler` and `raw` outlive the call, during which nothing else touches them.
                unsafe { ffi::rkv_model_init(metadata, Some(on_tensor), user_data, raw, out) }
            },
        );
        match filler.problem {
            Some(Problem::Panicked(message)) => Err(LoadError::CallbackPanicked { message }),
            Some(Problem::TooLarge) => Err(LoadError::NotEnoughMemory {
                available_bytes: available.unwrap_or_default(),
            }),
            Some(Problem::Unknown(text)) => {
                Err(Failure::new(FailureKind::Unsupported, text).into())
            }
            None => {
                filler
                    .tensors
                    .values()
                    .for_each(|mark| collector.field(mark));
                made.map(|model| model.with_fingerprint(collector.finish()))
            }
        }
    }

    fn array<T: Copy>(self, key: &str, values: &[T], kind: ffi::gguf_type) -> Self {
        // SAFETY: every caller passes plain numbers, whose bytes may be read.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        self.set(key, bytes, |metadata, key| {
            // SAFETY: `metadata` is owned here, `key` is not empty, and `values` holds that many values of that type.
            unsafe {
                ffi::gguf_set_arr_data(metadata, key, kind, values.as_ptr().cast(), values.len())
            }
        })
    }

    fn set(
        mut self,
        key: &str,
        value: &[u8],
        set: impl FnOnce(*mut ffi::gguf_context, *const std::ffi::c_char),
    ) -> Self {
        match CString::new(key) {
            Ok(c_key) if !key.is_empty() => {
                set(self.metadata.0, c_key.as_ptr());
                if !key.starts_with("tokenizer.") {
                    self.collector_input
                        .push((key.to_owned(), value.to_owned()));
                }
            }
            _ => self.complain(key, "a key must not be empty or hold a NUL byte"),
        }
        self
    }

    /// Remembers the first problem for [`build`](Self::build) to report.
    fn complain(&mut self, key: &str, reason: &str) {
        let problem = LoadError::Metadata {
            key: key.to_owned(),
            reason: reason.to_owned(),
        };
        self.problem.get_or_insert(problem);
    }
}

/// The metadata under construction, owned.
#[derive(Debug)]
struct Metadata(*mut ffi::gguf_context);

impl Metadata {
    fn new() -> Self {
        // SAFETY: takes nothing and answers a new object.
        Self(unsafe { ffi::gguf_init_empty() })
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        // SAFETY: the object came from gguf_init_empty and is owned here.
        unsafe { ffi::gguf_free(self.0) };
    }
}
