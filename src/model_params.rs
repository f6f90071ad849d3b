//! How to load a model.

use std::ffi::CString;

use crate::device::{Device, DeviceKind};
use crate::error::LoadError;
use crate::ffi;

/// How a model's tensors are spread over several devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SplitMode {
    /// Everything on the main device.
    None,
    /// Whole layers, with their cache, on each device.
    #[default]
    Layer,
    /// Rows of each matrix on each device, where the backend can.
    Row,
}

/// How a model's file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoadMode {
    /// As suits the devices.
    #[default]
    Auto,
    /// Read into memory.
    Read,
    /// Mapped: pages come in when they are touched. The file must not be changed while the model lives.
    Mmap,
    /// Read into memory and locked there.
    Mlock,
    /// Mapped and locked.
    MmapMlock,
    /// Read past the page cache, where the system can.
    DirectIo,
}

/// Parameters of [`Model::load`](crate::Model::load). The default puts every layer on the devices that there are.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ModelParams {
    gpu_layers: Option<u32>,
    split_mode: SplitMode,
    load_mode: LoadMode,
    main_device: u32,
    tensor_split: Vec<f32>,
    devices: Option<Vec<Device>>,
    vocab_only: bool,
    check_tensors: bool,
    keep_layout: bool,
    on_host: Vec<String>,
}

impl ModelParams {
    /// Number of layers, from the last one down, whose weights and cache go to devices. All of them by default.
    pub fn gpu_layers(mut self, layers: u32) -> Self {
        self.gpu_layers = Some(layers);
        self
    }

    /// How tensors are spread over several devices.
    pub fn split_mode(mut self, mode: SplitMode) -> Self {
        self.split_mode = mode;
        self
    }

    /// How the file is read.
    pub fn load_mode(mut self, mode: LoadMode) -> Self {
        self.load_mode = mode;
        self
    }

    /// Index of the device that [`SplitMode::None`] uses.
    pub fn main_device(mut self, index: u32) -> Self {
        self.main_device = index;
        self
    }

    /// Share of the model for each device, in any unit; devices that are not named get nothing.
    pub fn tensor_split(mut self, shares: &[f32]) -> Self {
        self.tensor_split = shares.to_vec();
        self
    }

    /// Use only these devices. They must be GPUs; the CPU is always there. An empty list means the CPU alone.
    pub fn devices(mut self, devices: &[Device]) -> Self {
        self.devices = Some(devices.to_vec());
        self
    }

    /// Load the vocabulary and the metadata only. Such a model cannot make a context.
    pub fn vocab_only(mut self) -> Self {
        self.vocab_only = true;
        self
    }

    /// Look at every weight for values that are not numbers. Takes longer.
    pub fn check_tensors(mut self) -> Self {
        self.check_tensors = true;
        self
    }

    /// Keep weights as the file has them, instead of rearranging them for the CPU's vector units. Slower, but the file
    /// can stay mapped.
    pub fn keep_layout(mut self) -> Self {
        self.keep_layout = true;
        self
    }

    /// Keep the weights whose names match this pattern (an ECMAScript regular expression, found anywhere in the name) in host memory,
    /// to be used by the CPU there. For example `ffn_.*_exps` for the experts of a model that has many: its attention, and the
    /// window of its cache, stay on the device. May be called several times.
    pub fn weights_on_host(mut self, pattern: &str) -> Self {
        self.on_host.push(pattern.to_owned());
        self
    }

    /// The C struct, with what its pointers point to.
    pub(crate) fn to_ffi(&self) -> Result<RawModelParams, LoadError> {
        // SAFETY: takes nothing and answers a struct by value.
        let mut raw = unsafe { ffi::llama_model_default_params() };
        raw.n_gpu_layers = match self.gpu_layers {
            None => -1,
            Some(layers) => layers.min(i32::MAX as u32) as i32,
        };
        raw.split_mode = match self.split_mode {
            SplitMode::None => ffi::LLAMA_SPLIT_MODE_NONE,
            SplitMode::Layer => ffi::LLAMA_SPLIT_MODE_LAYER,
            SplitMode::Row => ffi::LLAMA_SPLIT_MODE_ROW,
        };
        raw.load_mode = match self.load_mode {
            LoadMode::Auto => ffi::LLAMA_LOAD_MODE_AUTO,
            LoadMode::Read => ffi::LLAMA_LOAD_MODE_NONE,
            LoadMode::Mmap => ffi::LLAMA_LOAD_MODE_MMAP,
            LoadMode::Mlock => ffi::LLAMA_LOAD_MODE_MLOCK,
            LoadMode::MmapMlock => ffi::LLAMA_LOAD_MODE_MMAP_MLOCK,
            LoadMode::DirectIo => ffi::LLAMA_LOAD_MODE_DIRECT_IO,
        };
        raw.main_gpu = i32::try_from(self.main_device).map_err(|_| LoadError::Parameter {
            option: "main_device",
            reason: format!("{} is not the index of a device", self.main_device),
        })?;
        raw.vocab_only = self.vocab_only;
        raw.check_tensors = self.check_tensors;
        raw.use_extra_bufts = !self.keep_layout;

        let mut keep = RawModelParams {
            raw,
            split: self.checked_split()?,
            devices: self.checked_devices()?,
            patterns: self.checked_patterns()?,
            overrides: Vec::new(),
        };
        if !keep.patterns.is_empty() {
            // SAFETY: takes nothing and answers a pointer that is valid as long as the process.
            let host = unsafe { ffi::ggml_backend_cpu_buffer_type() };
            let named = keep.patterns.iter().map(|pattern| pattern.as_ptr());
            keep.overrides = named
                .chain([std::ptr::null()])
                .map(|pattern| ffi::llama_model_tensor_buft_override {
                    pattern,
                    buft: host,
                })
                .collect();
            keep.raw.tensor_buft_overrides = keep.overrides.as_ptr();
        }
        if let Some(split) = &keep.split {
            keep.raw.tensor_split = split.as_ptr();
        }
        if let Some(devices) = &mut keep.devices {
            keep.raw.devices = devices.as_mut_ptr();
        }
        Ok(keep)
    }

    fn checked_split(&self) -> Result<Option<Vec<f32>>, LoadError> {
        if self.tensor_split.is_empty() {
            return Ok(None);
        }
        // SAFETY: takes nothing and answers a constant.
        let max = unsafe { ffi::llama_max_devices() };
        let shares = &self.tensor_split;
        let sum: f32 = shares.iter().sum();
        let usable = shares
            .iter()
            .all(|share| share.is_finite() && *share >= 0.0)
            && sum > 0.0
            && sum.is_finite();
        if shares.len() > max || !usable {
            let reason =
                format!("{shares:?} must be at most {max} shares of 0 or more that are not all 0");
            return Err(LoadError::Parameter {
                option: "tensor_split",
                reason,
            });
        }
        let mut split = shares.clone();
        split.resize(max, 0.0);
        Ok(Some(split))
    }

    fn checked_patterns(&self) -> Result<Vec<CString>, LoadError> {
        let checked = self.on_host.iter().map(|pattern| {
            CString::new(pattern.as_str()).map_err(|_| LoadError::Parameter {
                option: "weights_on_host",
                reason: format!("{pattern:?} holds a zero byte"),
            })
        });
        checked.collect()
    }

    fn checked_devices(&self) -> Result<Option<Vec<ffi::ggml_backend_dev_t>>, LoadError> {
        let Some(devices) = &self.devices else {
            return Ok(None);
        };
        for device in devices {
            if !matches!(device.kind(), DeviceKind::Gpu | DeviceKind::IntegratedGpu) {
                let reason = format!("{device} is not a GPU; the CPU is always used for the rest");
                return Err(LoadError::Parameter {
                    option: "devices",
                    reason,
                });
            }
        }
        let ended = devices
            .iter()
            .map(Device::raw)
            .chain([std::ptr::null_mut()]);
        Ok(Some(ended.collect()))
    }
}

/// [`ModelParams`] as llama.cpp takes them; the vectors own what `raw` points to.
pub(crate) struct RawModelParams {
    pub(crate) raw: ffi::llama_model_params,
    split: Option<Vec<f32>>,
    devices: Option<Vec<ffi::ggml_backend_dev_t>>,
    patterns: Vec<CString>,
    overrides: Vec<ffi::llama_model_tensor_buft_override>,
}
