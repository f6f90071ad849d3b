//! Starting the library.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, Feature};
use crate::error::BackendError;
use crate::status::check;
use crate::{device, ffi, logging};

/// Only a patched libllama defines this symbol, so naming it here makes the linker refuse a stock one.
#[used]
static ABI_MARKER: unsafe extern "C" fn() -> u32 = ffi::rkv_abi_v1;

const ABI_VERSION: u32 = 1;

/// Sizes of the structs that cross the boundary, as this crate knows them. The order is `rkv_layout_digest`'s.
const STRUCT_SIZES: [usize; 25] = [
    size_of::<ffi::llama_model_params>(),
    size_of::<ffi::llama_context_params>(),
    size_of::<ffi::llama_batch>(),
    size_of::<ffi::llama_token_data>(),
    size_of::<ffi::llama_token_data_array>(),
    size_of::<ffi::llama_chat_message>(),
    size_of::<ffi::llama_perf_context_data>(),
    size_of::<ffi::rkv_model_info>(),
    size_of::<ffi::rkv_kv_mismatch>(),
    size_of::<ffi::rkv_context_need>(),
    size_of::<ffi::rkv_breakdown_row>(),
    size_of::<ffi::rkv_memory_info>(),
    size_of::<ffi::rkv_layer_residency>(),
    size_of::<ffi::rkv_residency_info>(),
    size_of::<ffi::rkv_staging_totals>(),
    size_of::<ffi::rkv_link_totals>(),
    size_of::<ffi::rkv_params>(),
    size_of::<ffi::rkv_rates>(),
    size_of::<ffi::rkv_plan_layer>(),
    size_of::<ffi::rkv_plan_model>(),
    size_of::<ffi::rkv_plan_ask>(),
    size_of::<ffi::rkv_plan_result>(),
    size_of::<ffi::rkv_engine_rates>(),
    size_of::<ffi::rkv_engine_choice>(),
    size_of::<ffi::rkv_probe_run>(),
];

/// Proof that llama.cpp was started and has a CPU backend. Copy it freely; starting happens once per process.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    _started: (),
}

static LIB_DIR: Mutex<Option<PathBuf>> = Mutex::new(None);

impl Backend {
    /// Starts llama.cpp: loads the backend modules and sends the log lines of llama.cpp and ggml to [`tracing`] (target
    /// `llama_cpp`). Later calls answer at once.
    ///
    /// The modules are looked for in the folder that the environment variable `ROLLING_KV_LIB_DIR` names; else in the
    /// executable's own folder when it holds `libggml-cpu*.so`; else where this crate's build put them.
    ///
    /// # Errors
    /// When no module suits this CPU, or the library is not the one this crate was built with. It can be tried again.
    pub fn init() -> Result<Self, BackendError> {
        let mut lib_dir = LIB_DIR.lock().unwrap_or_else(PoisonError::into_inner);
        if lib_dir.is_none() {
            *lib_dir = Some(start()?);
        }
        Ok(Self { _started: () })
    }

    /// The folder that the backend modules were loaded from.
    #[must_use]
    pub fn lib_dir(self) -> PathBuf {
        LIB_DIR
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .unwrap_or_default()
    }

    /// Version of llama.cpp, such as `v0.5.0`.
    #[must_use]
    pub fn llama_version(self) -> String {
        // SAFETY: llama_version answers a static text.
        unsafe { CStr::from_ptr(ffi::llama_version()) }
            .to_string_lossy()
            .into_owned()
    }

    /// What the library was built from: llama.cpp's commit and a hash of the patches.
    #[must_use]
    pub fn build_stamp(self) -> String {
        build_stamp()
    }

    /// Every device that a loaded backend offers, the CPU among them.
    #[must_use]
    pub fn devices(self) -> Vec<Device> {
        device::all()
    }

    /// Adds a simulated accelerator: a device with its own memory behind a link, whose arithmetic the CPU does. To test and to
    /// plan with; its speed is nobody's.
    ///
    /// `spec` is a list such as `mem=512MiB,link=6.4GB/s,latency=10us,seed=7`: the device's memory, the bandwidth and the latency
    /// of its link, and the seed of random delays (`delay=200us` is the longest). `fail=3` makes the third allocation fail,
    /// `devices=2` makes two of them. What is left out has a default; the empty text is fine.
    ///
    /// There is one specification a process. Models that are loaded afterwards use the device as they would use a card.
    ///
    /// # Errors
    /// When the specification cannot be read, when another one is in force, or when the module is missing.
    pub fn simulate(self, spec: &str) -> Result<Vec<Device>, BackendError> {
        let wrong = |reason: &str| BackendError::Simulated {
            reason: reason.to_owned(),
        };
        let dir = self.lib_dir();
        let c_dir = dir.to_str().and_then(|dir| CString::new(dir).ok());
        let c_dir = c_dir.ok_or_else(|| BackendError::BadPath { path: dir.clone() })?;
        let c_spec = CString::new(spec).map_err(|_| wrong("the specification holds a NUL byte"))?;

        let _registering = LIB_DIR.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both texts are NUL-terminated and outlive the call; the registry is changed under the lock.
        check(unsafe { ffi::rkv_sim_add(c_dir.as_ptr(), c_spec.as_ptr()) })
            .map_err(|failure| wrong(&failure.to_string()))?;
        Ok(device::all()
            .into_iter()
            .filter(|device| device.backend() == "SIM")
            .collect())
    }

    /// What each loaded backend says about itself, such as the instruction sets that it uses.
    #[must_use]
    pub fn features(self) -> Vec<Feature> {
        device::features()
    }
}

pub(crate) fn build_stamp() -> String {
    // SAFETY: rkv_build_stamp answers a static text.
    unsafe { CStr::from_ptr(ffi::rkv_build_stamp()) }
        .to_string_lossy()
        .into_owned()
}

fn start() -> Result<PathBuf, BackendError> {
    // SAFETY: the function takes nothing and answers a constant.
    let found = unsafe { ABI_MARKER() };
    if found != ABI_VERSION {
        return Err(BackendError::WrongLibrary {
            expected: ABI_VERSION,
            found,
        });
    }
    // SAFETY: the function takes nothing and answers a constant.
    if unsafe { ffi::rkv_layout_digest() } != layout_digest(&STRUCT_SIZES) {
        return Err(BackendError::OtherHeaders);
    }
    logging::install();
    // SAFETY: installs a callback that is a plain function of the library.
    unsafe { ffi::rkv_guard_install() };

    let dir = find_lib_dir();
    let bad_path = || BackendError::BadPath { path: dir.clone() };
    let c_dir = CString::new(dir.to_str().ok_or_else(bad_path)?).map_err(|_| bad_path())?;
    // SAFETY: `c_dir` is a NUL-terminated text that outlives the call.
    check(unsafe { ffi::rkv_backends_load(c_dir.as_ptr()) })?;

    // SAFETY: only asks the registry, which is not changed while LIB_DIR is locked.
    let cpu = unsafe { ffi::ggml_backend_dev_by_type(ffi::GGML_BACKEND_DEVICE_TYPE_CPU) };
    if cpu.is_null() {
        return Err(BackendError::NoCpuBackend { searched: dir });
    }
    // SAFETY: a backend is registered, so this only fills tables.
    unsafe { ffi::llama_backend_init() };
    Ok(dir)
}

fn layout_digest(sizes: &[usize]) -> u64 {
    sizes.iter().fold(0, |digest: u64, &size| {
        digest.wrapping_mul(4099).wrapping_add(size as u64)
    })
}

fn find_lib_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("ROLLING_KV_LIB_DIR").filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned));
    match beside {
        Some(dir) if holds_cpu_module(&dir) => dir,
        _ => env!("ROLLING_KV_LIB_DIR").into(),
    }
}

fn holds_cpu_module(dir: &Path) -> bool {
    let Ok(entries) = dir.read_dir() else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.starts_with("libggml-cpu"))
    })
}

#[cfg(test)]
mod tests {
    use super::{STRUCT_SIZES, layout_digest};
    use crate::ffi;

    #[test]
    fn a_struct_of_another_size_changes_the_digest() {
        // SAFETY: the function takes nothing and answers a constant.
        assert_eq!(layout_digest(&STRUCT_SIZES), unsafe {
            ffi::rkv_layout_digest()
        });
        for i in 0..STRUCT_SIZES.len() {
            let mut sizes = STRUCT_SIZES;
            sizes[i] += 8;
            assert_ne!(layout_digest(&sizes), layout_digest(&STRUCT_SIZES));
        }
    }
}
