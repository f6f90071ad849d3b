//! What tells one machine from another.

use std::fmt;
use std::fs;

use rolling_kv::Device;
use serde::{Deserialize, Serialize};

use crate::doctor;
use crate::run::fitting_threads;

/// A machine, as far as its rates depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineMark {
    /// What the processor calls itself.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Memory in GiB, rounded: the system's own share of it differs from boot to boot.
    pub memory_gib: u64,
    /// Absent where the host alone was measured.
    pub device: Option<DeviceMark>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceMark {
    /// Such as CUDA0.
    pub name: String,
    /// What the maker calls it.
    pub description: String,
    /// All of its memory, in MiB.
    pub memory_mib: u64,
    /// What drives it.
    pub driver: String,
}

impl MachineMark {
    /// This one.
    pub fn of_this(device: Option<Device>) -> Self {
        let memory = doctor::total_memory_bytes().unwrap_or(0);
        Self {
            cpu: doctor::cpu(),
            cores: fitting_threads(),
            memory_gib: (memory + (1 << 29)) >> 30,
            device: device.map(|device| DeviceMark {
                name: device.name(),
                description: device.description(),
                memory_mib: device.memory_bytes().1 >> 20,
                driver: driver(&device.backend()),
            }),
        }
    }

    /// The device in words, or the host's.
    pub fn device_words(&self) -> String {
        match &self.device {
            Some(device) => format!("{} ({})", device.name, device.description),
            None => self.cpu.clone(),
        }
    }

    /// How another machine differs; nothing where it does not.
    pub fn difference(&self, here: &Self) -> Option<String> {
        let device = |mark: &Self| {
            mark.device
                .as_ref()
                .map_or("none".into(), DeviceMark::to_string)
        };
        let fields = [
            ("CPU", self.cpu.clone(), here.cpu.clone()),
            ("cores", self.cores.to_string(), here.cores.to_string()),
            (
                "GiB of memory",
                self.memory_gib.to_string(),
                here.memory_gib.to_string(),
            ),
            ("device", device(self), device(here)),
        ];
        let differs = fields.into_iter().find(|(_, there, here)| there != here);
        differs.map(|(what, there, here)| format!("{what} there: {there}; here: {here}"))
    }
}

impl fmt::Display for DeviceMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}, {} MiB, driver {})",
            self.name, self.description, self.memory_mib, self.driver
        )
    }
}

impl fmt::Display for MachineMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "host: {}, {} cores, {} GiB",
            self.cpu, self.cores, self.memory_gib
        )?;
        match &self.device {
            Some(device) => write!(f, "\ndevice: {device}"),
            None => Ok(()),
        }
    }
}

/// The version of what drives a backend's devices, as far as it can be told.
fn driver(backend: &str) -> String {
    let version = || {
        let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
        text.split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
            .map(str::to_owned)
    };
    match backend {
        "CUDA" => version().unwrap_or_else(|| "unknown".into()),
        _ => backend.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> MachineMark {
        MachineMark {
            cpu: "a CPU".into(),
            cores: 2,
            memory_gib: 24,
            device: Some(DeviceMark {
                name: "SIM0".into(),
                description: "simulated".into(),
                memory_mib: 4096,
                driver: "SIM".into(),
            }),
        }
    }

    #[test]
    fn what_differs_is_named() {
        assert_eq!(mark().difference(&mark()), None);
        let mut other = mark();
        other.cpu = "another".into();
        assert_eq!(
            mark().difference(&other).unwrap(),
            "CPU there: a CPU; here: another"
        );
        let mut other = mark();
        other.device = None;
        let text = mark().difference(&other).unwrap();
        assert!(
            text.contains("SIM0 (simulated, 4096 MiB, driver SIM)") && text.ends_with("here: none")
        );
    }
}
