//! What a machine does.

use serde::{Deserialize, Serialize};

use crate::context_params::KvType;
use crate::error::PlanError;
use crate::ffi;

/// What a machine does, as measured or as published. 0 where nothing is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// The link to the device from pinned host memory, in bytes per second.
    pub to_device_pinned_bytes_per_s: f64,
    /// The same from ordinary memory.
    pub to_device_pageable_bytes_per_s: f64,
    /// The link from the device to pinned host memory.
    pub to_host_pinned_bytes_per_s: f64,
    /// The same to ordinary memory.
    pub to_host_pageable_bytes_per_s: f64,
    /// Latency of a copy, in seconds.
    pub link_latency_s: f64,
    /// Plain reads of host memory by all threads: what the link and the host's attention can read together. 0: no limit, as where both
    /// are reckoned apart.
    pub host_read_bytes_per_s: f64,
    /// The host's attention over K and V of a type, in bytes of them per second.
    pub host_kernel_bytes_per_s: Vec<(KvType, f64)>,
    /// The device's own memory, as it is read for one token.
    pub device_memory_bytes_per_s: f64,
    /// Attention of one token over K and V in the device's memory; 0: as `device_memory_bytes_per_s`.
    pub device_attention_bytes_per_s: f64,
    /// What a node of a graph takes on the device beside its bytes, in seconds.
    pub device_launch_s: f64,
    /// Operations per second of matrix products as wide as a prompt's batch; 0: without end.
    pub device_flops: f64,
    /// Memory of the device that is free, in bytes.
    pub device_bytes: u64,
    /// The same of the host.
    pub host_bytes: u64,
}

impl Rates {
    /// Every rate by name, but for those of types.
    fn named(&self) -> [(&'static str, f64); 10] {
        [
            (
                "to_device_pinned_bytes_per_s",
                self.to_device_pinned_bytes_per_s,
            ),
            (
                "to_device_pageable_bytes_per_s",
                self.to_device_pageable_bytes_per_s,
            ),
            (
                "to_host_pinned_bytes_per_s",
                self.to_host_pinned_bytes_per_s,
            ),
            (
                "to_host_pageable_bytes_per_s",
                self.to_host_pageable_bytes_per_s,
            ),
            ("link_latency_s", self.link_latency_s),
            ("host_read_bytes_per_s", self.host_read_bytes_per_s),
            ("device_memory_bytes_per_s", self.device_memory_bytes_per_s),
            (
                "device_attention_bytes_per_s",
                self.device_attention_bytes_per_s,
            ),
            ("device_launch_s", self.device_launch_s),
            ("device_flops", self.device_flops),
        ]
    }

    /// Checks that one can reckon with them.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let of_types = self.host_kernel_bytes_per_s.iter();
        let of_types = of_types.map(|(_, rate)| ("host_kernel_bytes_per_s", *rate));
        for (name, found) in self.named().into_iter().chain(of_types) {
            if !found.is_finite() || found < 0.0 {
                return Err(PlanError::Rate { name, found });
            }
        }
        if self.device_bytes == 0 {
            return Err(PlanError::NoDevice);
        }
        for (name, found) in [
            (
                "to_device_pinned_bytes_per_s",
                self.to_device_pinned_bytes_per_s,
            ),
            ("device_memory_bytes_per_s", self.device_memory_bytes_per_s),
        ] {
            if found <= 0.0 {
                return Err(PlanError::Rate { name, found });
            }
        }
        Ok(())
    }

    pub(crate) fn to_ffi(&self) -> ffi::rkv_rates {
        let mut raw = ffi::rkv_rates {
            to_device_pinned: self.to_device_pinned_bytes_per_s,
            to_device_pageable: self.to_device_pageable_bytes_per_s,
            to_host_pinned: self.to_host_pinned_bytes_per_s,
            to_host_pageable: self.to_host_pageable_bytes_per_s,
            link_latency_s: self.link_latency_s,
            host_read: self.host_read_bytes_per_s,
            host_kernel: [0.0; ffi::GGML_TYPE_COUNT as usize],
            device_memory: self.device_memory_bytes_per_s,
            device_attention: self.device_attention_bytes_per_s,
            device_launch_s: self.device_launch_s,
            device_flops: self.device_flops,
            device_bytes: self.device_bytes,
            host_bytes: self.host_bytes,
        };
        for (kv_type, rate) in &self.host_kernel_bytes_per_s {
            raw.host_kernel[kv_type.to_ffi() as usize] = *rate;
        }
        raw
    }

    /// The same with everything that takes time taking twice as long: what a check of predictions must notice.
    #[must_use]
    pub fn halved(&self) -> Self {
        let half = |rate: f64| rate / 2.0;
        let types = self.host_kernel_bytes_per_s.iter();
        Self {
            to_device_pinned_bytes_per_s: half(self.to_device_pinned_bytes_per_s),
            to_device_pageable_bytes_per_s: half(self.to_device_pageable_bytes_per_s),
            to_host_pinned_bytes_per_s: half(self.to_host_pinned_bytes_per_s),
            to_host_pageable_bytes_per_s: half(self.to_host_pageable_bytes_per_s),
            link_latency_s: self.link_latency_s * 2.0,
            host_read_bytes_per_s: half(self.host_read_bytes_per_s),
            host_kernel_bytes_per_s: types.map(|(of, rate)| (*of, half(*rate))).collect(),
            device_memory_bytes_per_s: half(self.device_memory_bytes_per_s),
            device_attention_bytes_per_s: half(self.device_attention_bytes_per_s),
            device_launch_s: self.device_launch_s * 2.0,
            device_flops: half(self.device_flops),
            device_bytes: self.device_bytes,
            host_bytes: self.host_bytes,
        }
    }
}
