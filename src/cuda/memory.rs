//! A card in use by this thread, and memory on both sides of its link.

use std::marker::PhantomData;

use cudarc::driver::{result, sys};

use super::{device, refused};
use crate::error::CudaError;

/// A card that this thread's calls go to. What the thread used before is put back when it is dropped.
pub(super) struct Card {
    device: sys::CUdevice,
    before: Option<sys::CUcontext>,
}

impl Card {
    /// Takes the card's primary context, the one that CUDA's runtime uses too.
    pub(super) fn take(ordinal: u32) -> Result<Self, CudaError> {
        let device = device(ordinal)?;
        let before = result::ctx::get_current().map_err(refused("name the context in use"))?;
        // SAFETY: the device was answered by the driver; `drop` releases what is retained.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(refused("open a card"))?;
        let card = Self { device, before };
        // SAFETY: the context is retained until `card` is dropped.
        unsafe { result::ctx::set_current(context) }.map_err(refused("use a card"))?;
        Ok(card)
    }

    /// What is free of the card's memory.
    pub(super) fn free_bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = result::mem_get_info().map_err(refused("tell the memory of a card"))?;
        Ok(free as u64)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let before = self.before.unwrap_or(std::ptr::null_mut());
        // SAFETY: `before` was this thread's context, or none, and the device's context was retained in `take`. A failure of either
        // leaves nothing to be done.
        unsafe {
            let _ = result::ctx::set_current(before);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

/// Memory of the card.
pub(super) struct DeviceBytes<'card> {
    at: sys::CUdeviceptr,
    bytes: usize,
    card: PhantomData<&'card Card>,
}

impl<'card> DeviceBytes<'card> {
    pub(super) fn new(_card: &'card Card, bytes: usize) -> Result<Self, CudaError> {
        // SAFETY: a card is in use by this thread; `drop` frees what comes.
        let at =
            unsafe { result::malloc_sync(bytes) }.map_err(refused("give memory of the card"))?;
        Ok(Self {
            at,
            bytes,
            card: PhantomData,
        })
    }

    /// Copies to the card, and waits for it.
    pub(super) fn write(&self, from: &[u8]) -> Result<(), CudaError> {
        let from = &from[..from.len().min(self.bytes)];
        // SAFETY: no more bytes than the card's memory has.
        unsafe { result::memcpy_htod_sync(self.at, from) }.map_err(refused("copy to the card"))?;
        result::ctx::synchronize().map_err(refused("wait for a copy"))
    }

    /// Copies from the card, and waits for it.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<(), CudaError> {
        let bytes = to.len().min(self.bytes);
        // SAFETY: no more bytes than the card's memory has.
        unsafe { result::memcpy_dtoh_sync(&mut to[..bytes], self.at) }
            .map_err(refused("copy from the card"))?;
        result::ctx::synchronize().map_err(refused("wait for a copy"))
    }
}

impl Drop for DeviceBytes<'_> {
    fn drop(&mut self) {
        // SAFETY: `at` came from malloc_sync and is used by nothing any more; the card is still in use.
        let _ = unsafe { result::free_sync(self.at) };
    }
}

/// Memory of the host that is pinned.
pub(super) struct PinnedBytes<'card> {
    at: *mut u8,
    bytes: usize,
    card: PhantomData<&'card Card>,
}

impl<'card> PinnedBytes<'card> {
    pub(super) fn new(_card: &'card Card, bytes: usize) -> Result<Self, CudaError> {
        // SAFETY: a card is in use by this thread; `drop` frees what comes.
        let at = unsafe { result::malloc_host(bytes, 0) }
            .map_err(refused("pin memory of the host"))?
            .cast::<u8>();
        // SAFETY: the memory has so many bytes; they are written before anything reads them.
        unsafe { at.write_bytes(1, bytes) };
        Ok(Self {
            at,
            bytes,
            card: PhantomData,
        })
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `at` has so many bytes, all written in `new`, and is borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }
}

impl Drop for PinnedBytes<'_> {
    fn drop(&mut self) {
        // SAFETY: `at` came from malloc_host and is used by nothing any more.
        let _ = unsafe { result::free_host(self.at.cast()) };
    }
}
