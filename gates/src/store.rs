//! What a gate measured so far, in a folder: a run that was interrupted goes on where it stopped, and the verdict is made of what is
//! kept.
//!
//! `results.jsonl` has the options in its first line, then one line a result. Raw logits are files beside it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::GateError;
use crate::raw_file;

/// Results by name. In memory alone unless it was opened on a folder.
#[derive(Debug, Default)]
pub struct Store {
    known: BTreeMap<String, Value>,
    damaged: Vec<String>,
    folder: Option<Folder>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    lines: File,
}

/// A file of floats, as a line tells of it.
#[derive(Serialize, Deserialize)]
struct Raw<T> {
    file: String,
    count: u64,
    digest: u64,
    with: T,
}

const LINES: &str = "results.jsonl";

impl Store {
    /// Opens a folder, or begins it. `options` says what was asked for: results of other options are no answer to it.
    ///
    /// # Errors
    /// When the folder cannot be read or written, holds results of other options, or another run writes there.
    pub fn open(folder: &Path, options: &Value) -> Result<Self, GateError> {
        let path = folder.join(LINES);
        let trouble = |source| GateError::Store {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(folder).map_err(trouble)?;
        let mut lines = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(trouble)?;
        if matches!(lines.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(GateError::InUse {
                folder: folder.into(),
            });
        }
        let text = fs::read_to_string(&path).map_err(trouble)?;
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        if text.is_empty() {
            writeln!(lines, "{options}").map_err(trouble)?;
        } else if serde_json::from_str::<Value>(first).ok().as_ref() != Some(options) {
            return Err(GateError::OtherOptions { path });
        } else if !text.ends_with('\n') {
            writeln!(lines).map_err(trouble)?;
        }
        let mut store = Self {
            known: entries(rest),
            damaged: Vec::new(),
            folder: Some(Folder {
                path: folder.into(),
                lines,
            }),
        };
        store.leave_out_what_is_damaged();
        Ok(store)
    }

    /// Names of the results that are there.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Names of the results of which a file is missing or damaged. They are made again.
    #[must_use]
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// What was measured under this name, or what `measure` finds now; it is kept at once.
    ///
    /// # Errors
    /// What `measure` says, or when it cannot be kept.
    pub fn get<T: Serialize + DeserializeOwned>(
        &mut self,
        key: &str,
        measure: impl FnOnce() -> Result<T, GateError>,
    ) -> Result<T, GateError> {
        if let Some(found) = self.known.get(key)
            && let Ok(found) = T::deserialize(found)
        {
            return Ok(found);
        }
        let found = measure()?;
        if let Some(folder) = &mut self.folder {
            folder.keep(key, &json!(found))?;
        }
        Ok(found)
    }

    /// Floats that were made under this name, and what was found with them; or what `measure` makes now. They are kept in a file of
    /// that name, and it is from there that they are taken.
    ///
    /// # Errors
    /// What `measure` says, or when they cannot be kept.
    pub fn floats<T: Serialize + DeserializeOwned>(
        &mut self,
        key: &str,
        measure: impl FnOnce() -> Result<(Vec<f32>, T), GateError>,
    ) -> Result<(Vec<f32>, T), GateError> {
        if let Some(kept) = self.kept(key) {
            return Ok(kept);
        }
        let (values, with) = measure()?;
        let Some(folder) = &mut self.folder else {
            return Ok((values, with));
        };
        let file = format!("{key}.f32");
        let path = folder.path.join(&file);
        let trouble = |source| GateError::Store {
            path: path.clone(),
            source,
        };
        let raw = Raw {
            digest: raw_file::write(&path, &values).map_err(trouble)?,
            count: values.len() as u64,
            file,
            with,
        };
        folder.keep(key, &json!(raw))?;
        self.known.insert(key.into(), json!(raw));
        let other = || io::Error::other("it does not hold what was written into it");
        self.kept(key).ok_or_else(|| trouble(other()))
    }

    fn kept<T: DeserializeOwned>(&self, key: &str) -> Option<(Vec<f32>, T)> {
        let folder = self.folder.as_ref()?;
        let raw = Raw::<T>::deserialize(self.known.get(key)?).ok()?;
        let values = raw_file::read(&folder.path.join(&raw.file), raw.count, raw.digest)?;
        Some((values, raw.with))
    }

    fn leave_out_what_is_damaged(&mut self) {
        let with_file = self.known.iter().filter(|(_, found)| {
            Raw::<Value>::deserialize(*found).is_ok() // Other results have no file.
        });
        let names = with_file.map(|(key, _)| key.clone());
        let damaged = names.filter(|key| self.kept::<Value>(key).is_none());
        self.damaged = damaged.collect();
        for key in &self.damaged {
            self.known.remove(key);
        }
    }
}

impl Folder {
    fn keep(&mut self, key: &str, found: &Value) -> Result<(), GateError> {
        let line = json!({ "key": key, "found": found });
        writeln!(self.lines, "{line}").map_err(|source| GateError::Store {
            path: self.path.join(LINES),
            source,
        })
    }
}

/// The last line of each name. A run that was killed while it wrote leaves half a line, which is none.
fn entries(lines: &str) -> BTreeMap<String, Value> {
    #[derive(Deserialize)]
    struct Entry {
        key: String,
        found: Value,
    }
    let entries = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    entries
        .map(|entry: Entry| (entry.key, entry.found))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Store {
        Store::open(folder, &json!({"seed": 1})).unwrap()
    }

    #[test]
    fn what_was_measured_is_not_measured_again_and_half_a_line_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/one");
        let mut store = open(&folder);
        assert_eq!(store.get("a", || Ok(1.5f32)).unwrap(), 1.5);
        assert_eq!(store.get("b", || Ok(2.5f32)).unwrap(), 2.5);
        drop(store);
        let path = folder.join(LINES);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 4]).unwrap();

        let mut store = open(&folder);
        assert_eq!(store.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(store.get("a", || Ok(9.0f32)).unwrap(), 1.5);
        assert_eq!(store.get("b", || Ok(3.5f32)).unwrap(), 3.5);
        drop(store);
        let mut store = open(&folder);
        assert_eq!(store.get("b", || Ok(9.0f32)).unwrap(), 3.5);
    }

    #[test]
    fn numbers_come_back_bit_by_bit() {
        let dir = tempfile::tempdir().unwrap();
        let odd = [0.1f64, 1.0 / 3.0, 2.3e-308, 1.7e308, 4.35, 1e23];
        for (at, value) in odd.iter().enumerate() {
            let name = at.to_string();
            let _ = open(dir.path()).get(&name, || Ok(*value)).unwrap();
            let kept = open(dir.path()).get(&name, || Ok(0.0f64)).unwrap();
            assert_eq!(kept.to_bits(), value.to_bits(), "{value:e}");
        }
    }

    #[test]
    fn floats_are_taken_from_their_file_and_made_again_when_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let made = |store: &mut Store, values: [f32; 2]| {
            let made = store.floats("stock", || Ok((values.to_vec(), "with".to_owned())));
            made.unwrap().0
        };
        assert_eq!(made(&mut open(dir.path()), [1.0, 2.0]), [1.0, 2.0]);
        let mut again = open(dir.path());
        assert_eq!(again.names().collect::<Vec<_>>(), ["stock"]);
        assert_eq!(made(&mut again, [9.0, 9.0]), [1.0, 2.0]);
        drop(again);

        fs::write(dir.path().join("stock.f32"), [0; 7]).unwrap();
        let mut again = open(dir.path());
        assert_eq!(
            (again.names().len(), again.damaged()),
            (0, &["stock".to_owned()][..])
        );
        assert_eq!(made(&mut again, [3.0, 4.0]), [3.0, 4.0]);
        drop(again);
        let again = open(dir.path());
        assert_eq!((again.names().len(), again.damaged().len()), (1, 0));

        let mut nowhere = Store::default();
        assert_eq!(made(&mut nowhere, [5.0, 6.0]), [5.0, 6.0]);
    }

    #[test]
    fn results_of_other_options_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()));
        let error = Store::open(dir.path(), &json!({"seed": 2})).unwrap_err();
        assert!(error.to_string().contains("other options"), "{error}");
    }

    #[test]
    fn two_runs_do_not_write_into_one_folder_and_a_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path());
        let error = Store::open(dir.path(), &json!({"seed": 1})).unwrap_err();
        assert!(error.to_string().contains("another run"), "{error}");
        drop(first);
        drop(open(dir.path()));

        let file = dir.path().join(LINES);
        let error = Store::open(&file, &json!({"seed": 1})).unwrap_err();
        assert!(matches!(error, GateError::Store { .. }), "{error}");
    }
}
