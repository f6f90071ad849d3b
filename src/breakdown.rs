//! Where the memory goes.

use std::ffi::{CStr, c_char};

use crate::context::Context;
use crate::error::Failure;
use crate::ffi;
use crate::status::check;

/// Memory of one kind that the model and one of its contexts take, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The kind, such as `CPU`, `CPU_REPACK` or `CUDA0`.
    pub buffer_type: String,
    /// The device, such as `CPU` or `CUDA0`; empty when it belongs to none.
    pub device: String,
    /// Whether it lies in the host's memory.
    pub on_host: bool,
    /// Weights.
    pub model_bytes: u64,
    /// Cache and states.
    pub context_bytes: u64,
    /// Working memory of a batch.
    pub compute_bytes: u64,
}

impl MemoryUse {
    /// All three together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.model_bytes + self.context_bytes + self.compute_bytes
    }
}

impl Context<'_> {
    /// What the model and this context take, for each kind of memory.
    ///
    /// # Errors
    /// When llama.cpp fails.
    pub fn memory_breakdown(&self) -> Result<Vec<MemoryUse>, Failure> {
        // SAFETY: plain numbers, flags and bytes, for which all zeroes is a value.
        let mut rows: Vec<ffi::rkv_breakdown_row> = vec![unsafe { std::mem::zeroed() }; 8];
        loop {
            let mut count = 0;
            // SAFETY: the context lives and is only read; `rows` has room for as many rows as it is long.
            check(unsafe {
                ffi::rkv_memory_breakdown_get(
                    self.raw.as_ptr(),
                    rows.as_mut_ptr(),
                    rows.len(),
                    &raw mut count,
                )
            })?;
            if count <= rows.len() {
                rows.truncate(count);
                return Ok(rows.iter().map(MemoryUse::from_row).collect());
            }
            rows.resize(count, rows[0]);
        }
    }
}

impl MemoryUse {
    fn from_row(row: &ffi::rkv_breakdown_row) -> Self {
        Self {
            buffer_type: text(&row.buffer_type),
            device: text(&row.device),
            on_host: row.is_host,
            model_bytes: row.model_bytes,
            context_bytes: row.context_bytes,
            compute_bytes: row.compute_bytes,
        }
    }
}

fn text(field: &[c_char]) -> String {
    // SAFETY: the C side ends each field with a NUL, within its length.
    unsafe { CStr::from_ptr(field.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}
