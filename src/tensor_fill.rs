//! Filling the tensors of a model that is made in memory.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ffi;
use crate::fingerprint::{Collector, sample_range};
use crate::model::panic_message;

/// How the values of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TensorType {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 16-bit floating point.
    F16,
    /// 16-bit floating point with the exponent of a 32-bit one.
    Bf16,
    /// Blocks of 32 values of 8 bits with a scale.
    Q8_0,
    /// Blocks of 32 values of 4 bits with a scale.
    Q4_0,
    /// Blocks of 32 values of 4 bits with a scale and an offset.
    Q4_1,
}

impl TensorType {
    pub(crate) fn to_ffi(self) -> ffi::ggml_type {
        match self {
            Self::F32 => ffi::GGML_TYPE_F32,
            Self::F16 => ffi::GGML_TYPE_F16,
            Self::Bf16 => ffi::GGML_TYPE_BF16,
            Self::Q8_0 => ffi::GGML_TYPE_Q8_0,
            Self::Q4_0 => ffi::GGML_TYPE_Q4_0,
            Self::Q4_1 => ffi::GGML_TYPE_Q4_1,
        }
    }
}

/// A tensor that is to be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSlot {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its extent in each dimension, the fastest first. The values are handed over in that order.
    pub shape: [u64; 4],
}

pub(crate) enum Problem {
    Panicked(String),
    TooLarge,
    Unknown(String),
}

/// What the tensor callback works with, for the time of one build.
pub(crate) struct Filler<'a> {
    pub(crate) fill: &'a mut dyn FnMut(&TensorSlot, &mut [f32]),
    /// A mark per tensor, by name: the order in which tensors come depends on where they lie.
    pub(crate) tensors: BTreeMap<String, [u8; 16]>,
    pub(crate) left_bytes: Option<u64>,
    pub(crate) problem: Option<Problem>,
}

pub(crate) unsafe extern "C" fn on_tensor(tensor: *mut ffi::ggml_tensor, user_data: *mut c_void) {
    // SAFETY: `user_data` is the Filler of the running UserModel::build, and loading calls this from its thread only.
    let filler = unsafe { &mut *user_data.cast::<Filler<'_>>() };
    if filler.problem.is_none() {
        // SAFETY: llama.cpp passes a tensor that is allocated and that nothing else touches during this call.
        let filled = catch_unwind(AssertUnwindSafe(|| unsafe { filler.one(tensor) }));
        filler.problem = match filled {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(panic) => Some(Problem::Panicked(panic_message(&*panic))),
        };
    }
}

impl Filler<'_> {
    /// # Safety
    /// `tensor` must be allocated and not be used by anything else meanwhile.
    unsafe fn one(&mut self, tensor: *mut ffi::ggml_tensor) -> Result<(), Problem> {
        // SAFETY: the tensor is valid by contract; these only read it.
        let (count, bytes, kind, ne, name) = unsafe {
            let name = CStr::from_ptr((*tensor).name.as_ptr())
                .to_string_lossy()
                .into_owned();
            (
                ffi::ggml_nelements(tensor),
                ffi::ggml_nbytes(tensor),
                (*tensor).type_,
                (*tensor).ne,
                name,
            )
        };
        let slot = TensorSlot {
            name,
            shape: ne.map(|extent| extent as u64),
        };
        let count = usize::try_from(count).map_err(|_| Problem::TooLarge)?;
        if let Some(left) = &mut self.left_bytes {
            let scratch = (count as u64).saturating_mul(size_of::<f32>() as u64);
            if scratch.saturating_add(bytes as u64) > *left {
                return Err(Problem::TooLarge);
            }
            *left = left.saturating_sub(bytes as u64);
        }
        let mut values = vec![0.0f32; count];
        (self.fill)(&slot, &mut values);

        let stored = stored(kind, &values, &slot, bytes)?;
        let mut mark = Collector::new();
        mark.field(slot.name.as_bytes());
        mark.field(&kind.to_le_bytes());
        slot.shape
            .iter()
            .for_each(|extent| mark.field(&extent.to_le_bytes()));
        let range = sample_range(bytes as u64);
        mark.field(&stored[range.start as usize..range.end as usize]);
        self.tensors.insert(slot.name, mark.finish().0);
        // SAFETY: the tensor is allocated by contract and takes exactly `bytes` bytes.
        unsafe { ffi::ggml_backend_tensor_set(tensor, stored.as_ptr().cast(), 0, bytes) };
        Ok(())
    }
}

/// The values in the tensor's own type.
fn stored(
    kind: ffi::ggml_type,
    values: &[f32],
    slot: &TensorSlot,
    bytes: usize,
) -> Result<Vec<u8>, Problem> {
    // SAFETY: looks up a table by a type that ggml gave to this tensor.
    let block_len = u64::try_from(unsafe { ffi::ggml_blck_size(kind) })
        .unwrap_or(1)
        .max(1);
    if !slot.shape[0].is_multiple_of(block_len) {
        return Err(Problem::Unknown(format!(
            "tensor {:?} has rows that are not whole blocks of its type",
            slot.name
        )));
    }
    let mut stored = vec![0u8; bytes];
    let count = values.len() as i64;
    match kind {
        ffi::GGML_TYPE_F32 => {
            stored
                .chunks_exact_mut(4)
                .zip(values)
                .for_each(|(to, from)| to.copy_from_slice(&from.to_le_bytes()));
        }
        // SAFETY: `stored` has room for as many 16-bit values as `values` has.
        ffi::GGML_TYPE_F16 => unsafe {
            ffi::ggml_fp32_to_fp16_row(values.as_ptr(), stored.as_mut_ptr().cast(), count);
        },
        // SAFETY: as above.
        ffi::GGML_TYPE_BF16 => unsafe {
            ffi::ggml_fp32_to_bf16_row_ref(values.as_ptr(), stored.as_mut_ptr().cast(), count);
        },
        ffi::GGML_TYPE_Q8_0 | ffi::GGML_TYPE_Q4_0 | ffi::GGML_TYPE_Q4_1 => {
            let row_len = slot.shape[0] as i64;
            // SAFETY: `stored` is exactly as large as the tensor, whose rows are whole blocks of its type.
            unsafe {
                ffi::ggml_quantize_chunk(
                    kind,
                    values.as_ptr(),
                    stored.as_mut_ptr().cast(),
                    0,
                    count / row_len,
                    row_len,
                    std::ptr::null(),
                );
            }
        }
        _ => {
            return Err(Problem::Unknown(format!(
                "tensor {:?} wants the type {kind}, which cannot be filled",
                slot.name
            )));
        }
    }
    Ok(stored)
}
