//! One measurement of a machine at a time.

use crate::backend::Backend;
use crate::context_params::KvType;
use crate::device::Device;
use crate::error::Failure;
use crate::ffi;
use crate::status::check;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeKind {
    /// A copy of so many bytes from pinned host memory to the device.
    ToDevicePinned(u64),
    /// The same from ordinary memory.
    ToDevicePageable(u64),
    /// A copy to pinned host memory.
    ToHostPinned(u64),
    /// A copy to ordinary memory.
    ToHostPageable(u64),
    /// A graph of so many nodes that hardly compute.
    DeviceNodes(u64),
    /// A matrix of so many bytes, multiplied with a vector.
    DeviceRead(u64),
    /// So many products of a matrix with a batch.
    DeviceMatrix(u64),
    /// Attention of one token over so many cells of f16 in the device's memory.
    DeviceAttention(u64),
    /// Reads of so many bytes of host memory by every thread together.
    HostRead(u64),
    /// The host's attention of one token over so many cells of a type.
    HostKernel(u64, KvType),
}

impl ProbeKind {
    fn to_ffi(self) -> (ffi::rkv_probe_kind, u64, KvType) {
        let f16 = KvType::F16;
        match self {
            Self::ToDevicePinned(bytes) => (ffi::RKV_PROBE_TO_DEVICE_PINNED, bytes, f16),
            Self::ToDevicePageable(bytes) => (ffi::RKV_PROBE_TO_DEVICE_PAGEABLE, bytes, f16),
            Self::ToHostPinned(bytes) => (ffi::RKV_PROBE_TO_HOST_PINNED, bytes, f16),
            Self::ToHostPageable(bytes) => (ffi::RKV_PROBE_TO_HOST_PAGEABLE, bytes, f16),
            Self::DeviceNodes(nodes) => (ffi::RKV_PROBE_DEVICE_NODES, nodes, f16),
            Self::DeviceRead(bytes) => (ffi::RKV_PROBE_DEVICE_READ, bytes, f16),
            Self::DeviceMatrix(products) => (ffi::RKV_PROBE_DEVICE_MATRIX, products, f16),
            Self::DeviceAttention(cells) => (ffi::RKV_PROBE_DEVICE_ATTENTION, cells, f16),
            Self::HostRead(bytes) => (ffi::RKV_PROBE_HOST_READ, bytes, f16),
            Self::HostKernel(cells, of) => (ffi::RKV_PROBE_HOST_KERNEL, cells, of),
        }
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ProbeRun {
    /// Seconds.
    pub seconds: f64,
    /// How much it was: bytes, nodes, or operations. 0 where there is nothing to measure, such as pinned memory.
    pub amount: f64,
    /// Whether the time is the device's own, reckoned one.
    pub reckoned: bool,
}

/// Measures a machine: its link, its host and one of its devices.
#[derive(Debug)]
pub struct Probe {
    raw: *mut ffi::rkv_probe,
}

// SAFETY: the C object has no thread of its own between two calls, and is used by one caller at a time.
unsafe impl Send for Probe {}

impl Probe {
    /// Of a device, or of the host alone. `threads` are the host's.
    ///
    /// # Errors
    /// When the device cannot be started.
    pub fn new(_started: Backend, device: Option<Device>, threads: u32) -> Result<Self, Failure> {
        let dev = device.map_or(std::ptr::null_mut(), |device| device.raw());
        let threads = i32::try_from(threads).unwrap_or(1);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device is of the registry, or NULL, which stands for none; the out parameter is valid.
        check(unsafe { ffi::rkv_probe_new(dev, threads, &raw mut raw) })?;
        Ok(Self { raw })
    }

    /// Measures once. What the run needs is kept for the next one of the same kind, so that only the first one makes it.
    ///
    /// # Errors
    /// When there is no memory for it, or the device fails.
    pub fn run(&mut self, kind: ProbeKind) -> Result<ProbeRun, Failure> {
        let (kind, size, of) = kind.to_ffi();
        let mut out = ffi::rkv_probe_run {
            seconds: 0.0,
            amount: 0.0,
            reckoned: false,
        };
        // SAFETY: the probe lives, and &mut self excludes other callers; the out parameter is valid.
        check(unsafe { ffi::rkv_probe_run_once(self.raw, kind, size, of.to_ffi(), &raw mut out) })?;
        Ok(ProbeRun {
            seconds: out.seconds,
            amount: out.amount,
            reckoned: out.reckoned,
        })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the probe came from rkv_probe_new and is freed once.
        unsafe { ffi::rkv_probe_free(self.raw) };
    }
}
