//! The option `--device`: a device that is not there, or one that is.

use std::fmt;

use rolling_kv::{Backend, BackendError, Device, DeviceKind};

/// Starts the backends, and adds the simulated device when one was asked for.
pub fn start(device: Option<&SimSpec>) -> Result<Backend, BackendError> {
    let backend = Backend::init()?;
    if let Some(SimSpec(spec)) = device {
        backend.simulate(spec)?;
    }
    Ok(backend)
}

/// A device by its name, or a simulated one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceArg {
    /// As llama.cpp calls it, such as CUDA0.
    Named(String),
    /// One that is not there.
    Sim(SimSpec),
}

/// There is no such device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSuchDevice {
    #[error("there is no device {name:?}\n  next: name one of {known}, or give sim:link=6.4GB/s")]
    Named { name: String, known: String },
    #[error(
        "this machine has no device with memory of its own, as far as this build can tell\n  \
         next: give --device sim:link=6.4GB/s for a simulated one, or see `rolling-kv doctor`"
    )]
    None,
}

impl DeviceArg {
    /// Reads a name, `sim`, or `sim:KEY=VALUE,...`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "sim" || text.contains(':') {
            return SimSpec::parse(text).map(|spec| Self::Sim(spec.for_timing()));
        }
        if text.is_empty() {
            return Err("give a name such as CUDA0, or sim:link=6.4GB/s".into());
        }
        Ok(Self::Named(text.to_owned()))
    }

    /// The simulated device that was asked for.
    pub fn sim(this: Option<&Self>) -> Option<&SimSpec> {
        match this {
            Some(Self::Sim(spec)) => Some(spec),
            _ => None,
        }
    }

    /// The device that is meant; without a name, the first one with memory of its own.
    pub fn find(this: Option<&Self>, backend: Backend) -> Result<Device, NoSuchDevice> {
        let devices = backend.devices();
        let has_memory = |device: &&Device| device.kind() == DeviceKind::Gpu;
        match this {
            Some(Self::Named(name)) => {
                let found = devices.iter().find(|device| device.name() == *name);
                found.copied().ok_or_else(|| NoSuchDevice::Named {
                    name: name.clone(),
                    known: devices
                        .iter()
                        .map(Device::name)
                        .collect::<Vec<_>>()
                        .join(", "),
                })
            }
            _ => devices
                .iter()
                .find(has_memory)
                .copied()
                .ok_or(NoSuchDevice::None),
        }
    }
}

/// What follows `sim:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSpec(pub String);

/// Bandwidth of the link when none is given, as in docs/SIM.md.
const DEFAULT_LINK: &str = "16GB/s";

/// What the host's kernel is reckoned to read when nothing is given, as in docs/SIM.md.
const DEFAULT_HOST: &str = "20GB/s";

/// Latency of the link when none is given, as in docs/SIM.md.
const DEFAULT_LATENCY: &str = "10us";

/// Costs of the size that a card has; of two entries with the same key the later one counts.
const FOR_TIMING: &str = "time=reckoned,launch=10us,membw=400GB/s,tiles=alias";

impl SimSpec {
    /// Reads `sim` or `sim:KEY=VALUE,...`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "sim" => Ok(Self(String::new())),
            Some(("sim", spec)) => Ok(Self(spec.to_owned())),
            _ => Err("give sim, or sim:mem=512MiB,link=6.4GB/s,latency=10us,seed=7".into()),
        }
    }

    /// Bandwidth of the link, in bytes per second; `None` when it cannot be read.
    pub fn link_bytes_per_s(&self) -> Option<f64> {
        rate(self.value_of("link").unwrap_or(DEFAULT_LINK))
    }

    /// Whether it has a value of its own for a key.
    pub fn says(&self, key: &str) -> bool {
        self.value_of(key).is_some()
    }

    /// Latency of the link, in seconds; `None` when it cannot be read.
    pub fn latency_s(&self) -> Option<f64> {
        let latency = self.value_of("latency").unwrap_or(DEFAULT_LATENCY);
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        scaled(latency, &units)
    }

    /// What it reckons the host's kernel to read, in bytes per second; `None` when it cannot be read.
    pub fn host_bytes_per_s(&self) -> Option<f64> {
        rate(self.value_of("hostbw").unwrap_or(DEFAULT_HOST))
    }

    /// The last value of a key.
    fn value_of(&self, key: &str) -> Option<&str> {
        let entries = self.0.split(',');
        entries
            .filter_map(|entry| entry.strip_prefix(key)?.strip_prefix('='))
            .next_back()
    }

    /// The same device with what measuring needs, unless it says otherwise: a time of its own, and tiles that take their time but
    /// whose bytes stay. See docs/SIM.md.
    #[must_use]
    pub fn for_timing(&self) -> Self {
        let more = if self.0.is_empty() { "" } else { "," };
        Self(format!("{FOR_TIMING}{more}{}", self.0))
    }
}

/// Units of a bandwidth.
const RATES: [(&str, f64); 4] = [
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("GiB/s", (1u64 << 30) as f64),
    ("MiB/s", (1u64 << 20) as f64),
];

/// A bandwidth, as it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    text: String,
    bytes_per_s: f64,
}

impl Rate {
    /// The least that a simulated device takes, in bytes per second.
    const LEAST: f64 = 1e6;

    /// Reads a number and a unit, such as `6.4GB/s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match scaled(text, &RATES) {
            Some(bytes_per_s) if bytes_per_s.is_finite() && bytes_per_s >= Self::LEAST => {
                Ok(Self {
                    text: text.to_owned(),
                    bytes_per_s,
                })
            }
            _ => Err(format!(
                "{text:?} is no bandwidth of at least 1MB/s; give one such as 6.4GB/s"
            )),
        }
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// A share of it, as a device takes it.
    pub fn of(&self, share: f64) -> String {
        if share == 1.0 {
            return self.text.clone();
        }
        format!("{}MB/s", self.bytes_per_s * share / 1e6)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Bytes per second.
fn rate(text: &str) -> Option<f64> {
    scaled(text, &RATES)
}

/// A number with one of these units behind it.
pub fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        Some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_sim_with_or_without_a_specification() {
        assert_eq!(SimSpec::parse("sim"), Ok(SimSpec(String::new())));
        assert_eq!(
            SimSpec::parse("sim:mem=1GiB"),
            Ok(SimSpec("mem=1GiB".into()))
        );
        for wrong in ["", "cuda", "simulated", "cuda:link=1GB/s"] {
            assert!(SimSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_named_or_simulated() {
        assert_eq!(
            DeviceArg::parse("CUDA0"),
            Ok(DeviceArg::Named("CUDA0".into()))
        );
        let sim = DeviceArg::parse("sim:link=2GB/s").unwrap();
        assert!(DeviceArg::sim(Some(&sim)).is_some_and(|spec| spec.0.ends_with("link=2GB/s")));
        for wrong in ["", "cuda:0"] {
            assert!(DeviceArg::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_measuring_needs_goes_before_what_was_given() {
        let timed = |spec: &str| SimSpec(spec.into()).for_timing().0;
        assert_eq!(timed(""), FOR_TIMING);
        assert!(timed("launch=1us,link=2GB/s").ends_with("tiles=alias,launch=1us,link=2GB/s"));
    }

    #[test]
    fn the_bandwidth_of_the_link_is_read_with_its_unit() {
        let rate = |spec: &str| SimSpec(spec.into()).link_bytes_per_s();
        assert_eq!(rate("mem=1GiB,link=6.4GB/s"), Some(6.4e9));
        assert_eq!(rate("link=500MB/s"), Some(5e8));
        assert_eq!(rate(""), Some(16e9));
        assert_eq!(rate("link=fast"), None);
        let host = |spec: &str| SimSpec(spec.into()).host_bytes_per_s();
        assert_eq!(
            (host(""), host("hostbw=500MB/s"), host("hostbw=x")),
            (Some(2e10), Some(5e8), None)
        );
    }

    #[test]
    fn a_rate_is_kept_as_it_was_given_and_what_is_none_is_refused() {
        let rate = Rate::parse("6.4GB/s").unwrap();
        assert_eq!(
            (rate.to_string().as_str(), rate.bytes_per_s()),
            ("6.4GB/s", 6.4e9)
        );
        assert_eq!(
            (rate.of(1.0), rate.of(0.5)),
            ("6.4GB/s".into(), "3200MB/s".into())
        );
        for wrong in ["", "6.4", "fast", "0GB/s", "-1GB/s", "infGB/s", "NaNGB/s"] {
            assert!(Rate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_device_says_itself_is_known() {
        let device = SimSpec("mem=1GiB,link=2GB/s".into());
        assert!(device.says("link") && !device.says("hostbw") && !device.for_timing().says("lin"));
    }

    #[test]
    fn the_latency_of_the_link_is_read_with_its_unit() {
        let latency = |spec: &str| SimSpec(spec.into()).latency_s();
        let is =
            |spec: &str, s: f64| latency(spec).is_some_and(|found| (found / s - 1.0).abs() < 1e-12);
        assert!(is("latency=5us,latency=2ms", 2e-3) && is("", 1e-5) && is("latency=3ns", 3e-9));
        assert_eq!(latency("latency=short"), None);
    }
}
