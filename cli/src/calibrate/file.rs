//! What was measured, as a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rolling_kv::{Calibration, Device, Measured, Rates};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mark::MachineMark;
use crate::cache::{self, NoCacheFolder};
use crate::digest;

/// The form of the file. What another version measured may mean something else.
const VERSION: u64 = 1;

/// What was measured of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationFile {
    /// The form.
    pub version: u64,
    /// The machine.
    pub machine: MachineMark,
    /// Threads of the host.
    pub threads: u32,
    /// Whether the device's time is a reckoned one.
    pub reckoned: bool,
    /// For plans.
    pub rates: Rates,
    /// Each of them as it was measured.
    pub measured: Vec<Measured>,
    /// What makes a rate doubtful.
    pub warnings: Vec<String>,
}

/// A file of rates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationFileError {
    #[error(transparent)]
    NoFolder(#[from] NoCacheFolder),
    #[error("{} is not measured yet: there is no {}\n  next: run `rolling-kv calibrate` for it, or give --machine (see --list-machines)", device, path.display())]
    NotMeasured { device: String, path: PathBuf },
    #[error("cannot read {}: {source}\n  next: check the path, or run `rolling-kv calibrate`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}\n  next: check the folder, or give another --out", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is no file of rates: {message}\n  next: write it anew with `rolling-kv calibrate`", path.display())]
    Form { path: PathBuf, message: String },
    #[error("{} is of version {found}, and this program reads version {known}\n  next: write it anew with `rolling-kv calibrate`", path.display())]
    Version {
        path: PathBuf,
        found: u64,
        known: u64,
    },
    #[error("{} is of another machine ({difference})\n  next: run `rolling-kv calibrate` here, or give the file with --rates to plan for that machine", path.display())]
    OtherMachine { path: PathBuf, difference: String },
}

impl CalibrationFile {
    /// Of what was found.
    pub fn new(machine: MachineMark, threads: u32, found: &Calibration) -> Self {
        Self {
            version: VERSION,
            machine,
            threads,
            reckoned: found.reckoned,
            rates: found.rates.clone(),
            measured: found.measured.clone(),
            warnings: found.warnings.clone(),
        }
    }

    /// As text. Every field has a form in JSON, so that the fallback is never taken.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Writes it beside its place, and renames it: it is there whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), CalibrationFileError> {
        let failed = |source| CalibrationFileError::Write {
            path: path.into(),
            source,
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let mut beside = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        io::Write::write_all(&mut beside, format!("{}\n", self.text()).as_bytes())
            .map_err(failed)?;
        beside
            .persist(path)
            .map(drop)
            .map_err(|error| failed(error.error))
    }

    /// Reads one, of whatever machine.
    pub fn read(path: &Path) -> Result<Self, CalibrationFileError> {
        let text = fs::read_to_string(path).map_err(|source| CalibrationFileError::Read {
            path: path.into(),
            source,
        })?;
        let form = |error: serde_json::Error| CalibrationFileError::Form {
            path: path.into(),
            message: error.to_string(),
        };
        let value: Value = serde_json::from_str(&text).map_err(form)?;
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) | None => serde_json::from_value(value).map_err(form),
            Some(found) => Err(CalibrationFileError::Version {
                path: path.into(),
                found,
                known: VERSION,
            }),
        }
    }

    /// What is kept of a device of this machine, with the memory that is free now.
    pub fn of_this_machine(device: Device) -> Result<Self, CalibrationFileError> {
        let here = MachineMark::of_this(Some(device));
        let path = place(&here)?;
        if !path.exists() {
            return Err(CalibrationFileError::NotMeasured {
                device: here.device_words(),
                path,
            });
        }
        let mut file = Self::read(&path)?;
        if let Some(difference) = file.machine.difference(&here) {
            return Err(CalibrationFileError::OtherMachine { path, difference });
        }
        file.rates.device_bytes = device.memory_bytes().0;
        Ok(file)
    }
}

/// Where the rates of a machine's device are kept: one file a device, named by what it is and not by whose machine it is in, so that a
/// cache folder that came from elsewhere is noticed.
pub fn place(mark: &MachineMark) -> Result<PathBuf, NoCacheFolder> {
    let (name, digest) = match &mark.device {
        Some(device) => (device.name.as_str(), digest::of_text(&device.to_string())),
        None => ("host", digest::of_text("host")),
    };
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    Ok(cache::folder()?
        .join("calibrations")
        .join(format!("{name}-{}.json", &digest[..12])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> CalibrationFile {
        CalibrationFile {
            version: VERSION,
            machine: MachineMark {
                cpu: "a CPU".into(),
                cores: 2,
                memory_gib: 24,
                device: None,
            },
            threads: 2,
            reckoned: false,
            rates: Rates {
                host_read_bytes_per_s: 25.3e9,
                ..Rates::default()
            },
            measured: Vec::new(),
            warnings: vec!["noisy".into()],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/rates.json");
        file().write(&path).unwrap();
        assert_eq!(CalibrationFile::read(&path).unwrap(), file());
    }

    #[test]
    fn what_is_no_file_of_rates_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.json");
        let error = |text: &str| {
            fs::write(&path, text).unwrap();
            CalibrationFile::read(&path).unwrap_err().to_string()
        };
        let other = file().text().replace("\"version\": 1", "\"version\": 9");
        for (text, word) in [("", "EOF"), ("{}", "missing field"), (&other, "version 9")] {
            let error = error(text);
            assert!(error.contains(word) && error.contains("next: "), "{error}");
        }
        let missing = CalibrationFile::read(Path::new("/missing/x.json")).unwrap_err();
        assert!(missing.to_string().contains("rolling-kv calibrate"));
    }
}
