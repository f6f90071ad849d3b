//! What can compute.

use std::ffi::{CStr, c_char};
use std::fmt;

use crate::ffi;

/// What kind of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The processor with the host's memory.
    Cpu,
    /// A card with its own memory.
    Gpu,
    /// A graphics unit that shares the host's memory.
    IntegratedGpu,
    /// A library that speeds up some operations of the CPU.
    Accelerator,
    /// Something that this crate does not know.
    Other,
}

/// A device that a loaded backend offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Device {
    raw: ffi::ggml_backend_dev_t,
}

// SAFETY: a device is an entry of ggml's registry: it is made when its module is loaded, never changed or freed after,
// and the functions that read it keep no state of their own.
unsafe impl Send for Device {}
// SAFETY: as above; nothing is written through a Device.
unsafe impl Sync for Device {}

/// What crossed a device's link since the device was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkTotals {
    /// Bytes copied from the host's memory to the device's.
    pub bytes_to_device: u64,
    /// Bytes copied the other way.
    pub bytes_to_host: u64,
    /// Copies to the device.
    pub copies_to_device: u64,
    /// Copies to the host.
    pub copies_to_host: u64,
    /// What the copies to the device took by the link's bandwidth, in nanoseconds.
    pub busy_ns: u64,
}

/// One thing that a backend says about itself, such as `AVX2 = 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The backend, such as `CPU`.
    pub backend: String,
    /// The feature.
    pub name: String,
    /// Its value, mostly `1`.
    pub value: String,
}

impl Device {
    /// Short name, such as `CPU` or `CUDA0`.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: `raw` is an entry of the registry, which lives as long as the process.
        text(unsafe { ffi::ggml_backend_dev_name(self.raw) })
    }

    /// What the maker calls it.
    #[must_use]
    pub fn description(&self) -> String {
        // SAFETY: `raw` is an entry of the registry, which lives as long as the process.
        text(unsafe { ffi::ggml_backend_dev_description(self.raw) })
    }

    /// What kind of device it is.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        // SAFETY: `raw` is an entry of the registry, which lives as long as the process.
        match unsafe { ffi::ggml_backend_dev_type(self.raw) } {
            ffi::GGML_BACKEND_DEVICE_TYPE_CPU => DeviceKind::Cpu,
            ffi::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
            ffi::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
            ffi::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceKind::Accelerator,
            _ => DeviceKind::Other,
        }
    }

    /// Free and total memory in bytes, as the device reports them now.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: `raw` is an entry of the registry; both out parameters are valid.
        unsafe { ffi::ggml_backend_dev_memory(self.raw, &raw mut free, &raw mut total) };
        (free as u64, total as u64)
    }

    /// What crossed its link; `None` when it does not tell, as all but the simulated one.
    #[must_use]
    pub fn link_totals(&self) -> Option<LinkTotals> {
        let mut raw = ffi::rkv_link_totals {
            bytes_to_device: 0,
            bytes_to_host: 0,
            copies_to_device: 0,
            copies_to_host: 0,
            busy_ns: 0,
        };
        // SAFETY: `raw` is an entry of the registry; the out parameter is valid for the call to fill.
        unsafe { ffi::rkv_link_totals_get(self.raw, &raw mut raw) }.then_some(LinkTotals {
            bytes_to_device: raw.bytes_to_device,
            bytes_to_host: raw.bytes_to_host,
            copies_to_device: raw.copies_to_device,
            copies_to_host: raw.copies_to_host,
            busy_ns: raw.busy_ns,
        })
    }

    /// The backend that offers it, such as `CPU` or `CUDA`.
    #[must_use]
    pub fn backend(&self) -> String {
        // SAFETY: every registered device belongs to a registered backend with a static name.
        text(unsafe { ffi::ggml_backend_reg_name(ffi::ggml_backend_dev_backend_reg(self.raw)) })
    }

    pub(crate) fn raw(&self) -> ffi::ggml_backend_dev_t {
        self.raw
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("kind", &self.kind())
            .finish()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.description())
    }
}

pub(crate) fn all() -> Vec<Device> {
    // SAFETY: the registry is not changed after Backend::init, of which the caller has proof.
    let count = unsafe { ffi::ggml_backend_dev_count() };
    let device = |index| {
        // SAFETY: every index below the count is valid.
        let raw = unsafe { ffi::ggml_backend_dev_get(index) };
        Device { raw }
    };
    (0..count).map(device).collect()
}

pub(crate) fn features() -> Vec<Feature> {
    let mut found = Vec::new();
    // SAFETY: the registry is not changed after Backend::init, of which the caller has proof.
    for index in 0..unsafe { ffi::ggml_backend_reg_count() } {
        // SAFETY: every index below the count is valid.
        let reg = unsafe { ffi::ggml_backend_reg_get(index) };
        // SAFETY: `reg` is a registered backend and the name is NUL-terminated.
        let address = unsafe {
            ffi::ggml_backend_reg_get_proc_address(reg, c"ggml_backend_get_features".as_ptr())
        };
        if address.is_null() {
            continue;
        }
        // SAFETY: ggml documents this type for the function of this name.
        let get: unsafe extern "C" fn(ffi::ggml_backend_reg_t) -> *mut ffi::ggml_backend_feature =
            unsafe { std::mem::transmute(address) };
        // SAFETY: as documented, the answer is an array that ends with an entry without a name and lives for ever.
        let mut entry = unsafe { get(reg) };
        // SAFETY: `entry` points into that array and stops at its last entry.
        while !entry.is_null() && !unsafe { (*entry).name }.is_null() {
            // SAFETY: as above; both texts are static.
            let (name, value) = unsafe { (text((*entry).name), text((*entry).value)) };
            // SAFETY: `reg` is a registered backend with a static name.
            let backend = text(unsafe { ffi::ggml_backend_reg_name(reg) });
            found.push(Feature {
                backend,
                name,
                value,
            });
            // SAFETY: the entry with a name is followed by another entry.
            entry = unsafe { entry.add(1) };
        }
    }
    found
}

fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, and every caller passes a NUL-terminated text of the registry.
    unsafe { CStr::from_ptr(raw) }
        .to_string_lossy()
        .into_owned()
}
