//! The CPU threads of a context. Without a pool of its own, ggml would start and end them at every step.

use crate::context_params::ContextParams;
use crate::error::Failure;
use crate::ffi;
use crate::ptr::Ptr;
use crate::status::check;

/// One pool for single tokens and, if it has another size, one for batches. Must be dropped after the context.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pools: Vec<Pool>,
}

#[derive(Debug)]
struct Pool(ffi::ggml_threadpool_t);

impl Threads {
    /// Makes the pools and hands them to the context.
    pub(crate) fn attach(
        context: &mut Ptr<ffi::llama_context>,
        params: &ContextParams,
    ) -> Result<Self, Failure> {
        let (one, many) = (params.threads_for_token(), params.threads_for_batch());
        let mut threads = Self::default();
        threads.start(one)?;
        if many != one {
            threads.start(many)?;
        }
        if let [first, rest @ ..] = threads.pools.as_slice() {
            let batch = rest.first().unwrap_or(first);
            // SAFETY: the context lives, and the caller keeps the pools longer than it.
            unsafe { ffi::llama_attach_threadpool(context.as_mut_ptr(), first.0, batch.0) };
        }
        Ok(threads)
    }

    fn start(&mut self, n_threads: u32) -> Result<(), Failure> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: `pool` is valid for the call to fill; the number was checked to be between 1 and ggml's limit.
        check(unsafe { ffi::rkv_threadpool_new(n_threads as i32, &raw mut pool) })?;
        if !pool.is_null() {
            self.pools.push(Pool(pool));
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool came from rkv_threadpool_new, and the context it was attached to is gone.
        unsafe { ffi::rkv_threadpool_free(self.0) };
    }
}
