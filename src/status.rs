//! The only place that decodes the status of the C surface.

use std::ffi::CStr;

use crate::error::{Failure, FailureKind};
use crate::ffi;

/// Turns a status into a result; the text is what the C side left for this thread.
pub(crate) fn check(status: ffi::rkv_status) -> Result<(), Failure> {
    if status == ffi::RKV_OK {
        Ok(())
    } else {
        Err(failure(status))
    }
}

#[cold]
fn failure(status: ffi::rkv_status) -> Failure {
    let kind = match status {
        ffi::RKV_ERR_EXCEPTION => FailureKind::Exception,
        ffi::RKV_ERR_ASSERT => FailureKind::Assertion,
        ffi::RKV_ERR_UNSUPPORTED => FailureKind::Unsupported,
        ffi::RKV_ERR_NO_MEMORY => FailureKind::NoMemory,
        _ => FailureKind::Refused,
    };
    // SAFETY: rkv_error_last never answers NULL, and the text is copied before anything else is called on this thread.
    let text = unsafe { CStr::from_ptr(ffi::rkv_error_last()) };
    Failure::new(kind, text.to_string_lossy())
}

/// Calls `fill` with a growing buffer until it fits. `fill` gets the buffer and answers a status and the needed length.
pub(crate) fn sized<T: Copy + Default>(
    first_len: usize,
    mut fill: impl FnMut(&mut [T]) -> (ffi::rkv_status, usize),
) -> Result<Vec<T>, Failure> {
    let mut buffer = vec![T::default(); first_len];
    loop {
        let (status, needed) = fill(&mut buffer);
        if status == ffi::RKV_ERR_TOO_SMALL && needed > buffer.len() {
            buffer.resize(needed, T::default());
            continue;
        }
        check(status)?;
        buffer.truncate(needed);
        return Ok(buffer);
    }
}
