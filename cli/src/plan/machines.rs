//! Machines by their published rates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rolling_kv::{KvType, Rates};
use serde::Deserialize;

use super::error::MachinesError;

/// Those that are compiled in.
pub const BUILT_IN: &str = include_str!("../../machines.toml");

/// The version of the form that this program reads.
const VERSION: i64 = 1;

const GB: f64 = 1e9;

/// A number and where it comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    pub value: f64,
    pub why: String,
    pub source: String,
}

/// A file of machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Machines {
    #[serde(skip)]
    file: String,
    #[serde(rename = "version")]
    _version: i64,
    reached: Reached,
    driver_mib: Known,
    kernel: BTreeMap<KvName, Known>,
    latency_us: Known,
    launch_us: Known,
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    #[serde(rename = "card")]
    pub cards: Vec<Card>,
    #[serde(rename = "host")]
    pub hosts: Vec<Host>,
    #[serde(rename = "machine")]
    pub machines: Vec<Machine>,
}

/// Shares of what is published that are reached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Reached {
    device_memory: Known,
    host_memory: Known,
    host_free: Known,
    operations: Known,
}

/// The name of a type of K and V, in an order for maps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct KvName(String);

/// A link between host and device; in GB/s.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: String,
    pub theory: Known,
    pub pinned: Known,
    pub pageable: Known,
}

/// A device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Card {
    pub name: String,
    pub memory_mib: Known,
    /// In GB/s.
    pub memory: Known,
    pub teraflops: Known,
}

/// A host's memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    pub name: String,
    /// In GB/s.
    pub memory: Known,
    pub memory_gib: Known,
}

/// What a machine is put together from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub name: String,
    card: String,
    link: String,
    host: String,
}

/// Something with a name.
trait Named {
    const KIND: &'static str;
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($part:ty: $kind:literal),*) => {
        $(impl Named for $part {
            const KIND: &'static str = $kind;
            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}

named!(Link: "link", Card: "card", Host: "host", Machine: "machine");

fn names<T: Named>(parts: &[T]) -> String {
    let names: Vec<&str> = parts.iter().map(Named::name).collect();
    names.join(", ")
}

impl Machines {
    /// Those of a file, or those that are compiled in.
    pub fn read(path: Option<&Path>) -> Result<Self, MachinesError> {
        let Some(path) = path else {
            return Self::parse("the built-in list", BUILT_IN);
        };
        let text = fs::read_to_string(path).map_err(|source| MachinesError::Read {
            path: path.into(),
            source,
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self, MachinesError> {
        #[derive(Deserialize)]
        struct Head {
            version: i64,
        }
        let form = |error: toml::de::Error| MachinesError::Form {
            file: file.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        };
        let head: Head = toml::from_str(text).map_err(form)?;
        if head.version != VERSION {
            return Err(MachinesError::Version {
                file: file.to_owned(),
                found: head.version,
                known: VERSION,
            });
        }
        let mut machines: Self = toml::from_str(text).map_err(form)?;
        machines.file = file.to_owned();
        machines.check()?;
        Ok(machines)
    }

    /// Every number is one, and says where it comes from; every machine is made of parts that there are.
    fn check(&self) -> Result<(), MachinesError> {
        for (what, known) in self.numbers() {
            let file = self.file.clone();
            if !known.value.is_finite() || known.value <= 0.0 {
                let value = known.value;
                return Err(MachinesError::Number { file, what, value });
            }
            if known.why.trim().is_empty() || known.source.trim().is_empty() {
                return Err(MachinesError::Reason { file, what });
            }
        }
        if let Some(name) = self.kernel.keys().find(|name| name.kv_type().is_none()) {
            return Err(MachinesError::Form {
                file: self.file.clone(),
                message: format!("kernel.{} is no type of K and V", name.0),
            });
        }
        self.machines
            .iter()
            .try_for_each(|machine| self.rates(machine).map(drop))
    }

    /// Every number, with its place.
    pub fn numbers(&self) -> Vec<(String, &Known)> {
        let mut all = vec![
            (
                "reached.device-memory".to_owned(),
                &self.reached.device_memory,
            ),
            ("reached.host-memory".to_owned(), &self.reached.host_memory),
            ("reached.host-free".to_owned(), &self.reached.host_free),
            ("reached.operations".to_owned(), &self.reached.operations),
            ("driver-mib".to_owned(), &self.driver_mib),
            ("latency-us".to_owned(), &self.latency_us),
            ("launch-us".to_owned(), &self.launch_us),
        ];
        all.extend(
            self.kernel
                .iter()
                .map(|(name, known)| (format!("kernel.{}", name.0), known)),
        );
        for it in &self.links {
            let parts = [
                ("theory", &it.theory),
                ("pinned", &it.pinned),
                ("pageable", &it.pageable),
            ];
            all.extend(parts.map(|(part, known)| (format!("link {}, {part}", it.name), known)));
        }
        for it in &self.cards {
            let parts = [
                ("memory-mib", &it.memory_mib),
                ("memory", &it.memory),
                ("teraflops", &it.teraflops),
            ];
            all.extend(parts.map(|(part, known)| (format!("card {}, {part}", it.name), known)));
        }
        for it in &self.hosts {
            let parts = [("memory", &it.memory), ("memory-gib", &it.memory_gib)];
            all.extend(parts.map(|(part, known)| (format!("host {}, {part}", it.name), known)));
        }
        all
    }

    /// The rates that plans for a machine reckon with.
    pub fn of_name(&self, name: &str) -> Result<Rates, MachinesError> {
        let found = self.machines.iter().find(|machine| machine.name == name);
        let machine = found.ok_or_else(|| MachinesError::NoSuchMachine {
            file: self.file.clone(),
            name: name.to_owned(),
            known: names(&self.machines),
        })?;
        self.rates(machine)
    }

    fn part<'a, T: Named>(
        &self,
        parts: &'a [T],
        name: &str,
        machine: &Machine,
    ) -> Result<&'a T, MachinesError> {
        let found = parts.iter().find(|part| part.name() == name);
        found.ok_or_else(|| MachinesError::Part {
            file: self.file.clone(),
            machine: machine.name.clone(),
            kind: T::KIND,
            name: name.to_owned(),
            known: names(parts),
        })
    }

    /// The rates of a machine.
    pub fn rates(&self, machine: &Machine) -> Result<Rates, MachinesError> {
        let card = self.part(&self.cards, &machine.card, machine)?;
        let link = self.part(&self.links, &machine.link, machine)?;
        let host = self.part(&self.hosts, &machine.host, machine)?;
        let host_read = host.memory.value * self.reached.host_memory.value * GB;
        let kernels = self.kernel.iter();
        let kernels =
            kernels.filter_map(|(name, share)| Some((name.kv_type()?, share.value * host_read)));
        let mib = (card.memory_mib.value - self.driver_mib.value).max(0.0);
        Ok(Rates {
            to_device_pinned_bytes_per_s: link.pinned.value * GB,
            to_device_pageable_bytes_per_s: link.pageable.value * GB,
            to_host_pinned_bytes_per_s: link.pinned.value * GB,
            to_host_pageable_bytes_per_s: link.pageable.value * GB,
            link_latency_s: self.latency_us.value * 1e-6,
            host_read_bytes_per_s: host_read,
            host_kernel_bytes_per_s: kernels.collect(),
            device_memory_bytes_per_s: card.memory.value * self.reached.device_memory.value * GB,
            device_attention_bytes_per_s: 0.0,
            device_launch_s: self.launch_us.value * 1e-6,
            device_flops: card.teraflops.value * self.reached.operations.value * 1e12,
            device_bytes: mib as u64 * (1 << 20),
            host_bytes: (host.memory_gib.value * self.reached.host_free.value * f64::from(1 << 30))
                as u64,
        })
    }

    /// The tables of `--list-machines`.
    pub fn tables(&self) -> Result<String, MachinesError> {
        let mut text = format!(
            "{:16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  made of\n{:16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            "machine",
            "device",
            "its read",
            "link",
            "host",
            "its read",
            "f16 kernel",
            "",
            "MiB",
            "GB/s",
            "GB/s",
            "GiB",
            "GB/s",
            "GB/s"
        );
        for machine in &self.machines {
            let rates = self.rates(machine)?;
            let kernel = rates.host_kernel_bytes_per_s.iter();
            let f16 = kernel
                .filter(|(of, _)| *of == KvType::F16)
                .map(|(_, rate)| rate / GB)
                .sum::<f64>();
            text += &format!(
                "{:16} {:>9} {:>9.0} {:>9.1} {:>9.0} {:>9.1} {:>9.1}  {}, {}, {}\n",
                machine.name,
                rates.device_bytes >> 20,
                rates.device_memory_bytes_per_s / GB,
                rates.to_device_pinned_bytes_per_s / GB,
                rates.host_bytes >> 30,
                rates.host_read_bytes_per_s / GB,
                f16,
                machine.card,
                machine.link,
                machine.host
            );
        }
        text += "\nEvery number, with what it is and where it was read:\n";
        for (what, known) in self.numbers() {
            text += &format!(
                "{what:28} {:>9}  {}; {}\n",
                known.value, known.why, known.source
            );
        }
        Ok(text)
    }
}

impl KvName {
    fn kv_type(&self) -> Option<KvType> {
        KvType::ALL.into_iter().find(|of| of.to_string() == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_machine_has_rates_and_every_number_a_reason() {
        let machines = Machines::read(None).unwrap();
        assert!(machines.machines.len() >= 6);
        for machine in &machines.machines {
            let rates = machines.of_name(&machine.name).unwrap();
            assert!(rates.to_device_pinned_bytes_per_s > 1e9 && rates.device_bytes > 20 << 30);
            assert!(rates.host_kernel_bytes_per_s.len() >= 4);
            assert!(rates.to_device_pinned_bytes_per_s < rates.device_memory_bytes_per_s);
        }
        for link in &machines.links {
            assert!(
                link.pageable.value < link.pinned.value && link.pinned.value < link.theory.value
            );
        }
        let text = machines.tables().unwrap();
        assert!(text.contains("h200 ") && text.contains("https://"));
    }

    #[test]
    fn a_file_that_cannot_be_used_says_what_to_change() {
        let changed = |from: &str, to: &str| {
            assert!(BUILT_IN.contains(from), "{from}");
            let text = BUILT_IN.replace(from, to);
            Machines::parse("mine.toml", &text).unwrap_err().to_string()
        };
        for (error, word) in [
            (changed("version = 1", "version = 2"), "version 2"),
            (changed("value = 15.75", "value = -1"), "-1"),
            (changed("why = \"HBM3\"", "why = \"\""), "no reason"),
            (changed("link = \"gen5-x16\"", "link = \"gen9\""), "gen9"),
            (changed("[kernel.q8_0]", "[kernel.q9]"), "q9"),
            (changed("[latency-us]", "[latency]"), "latency"),
        ] {
            assert!(
                error.contains(word) && error.contains("mine.toml") && error.contains("next: "),
                "{error}"
            );
        }
        let machines = Machines::read(None).unwrap();
        let error = machines.of_name("cray").unwrap_err().to_string();
        assert!(error.contains("rtx4090-gen4"), "{error}");
    }
}
