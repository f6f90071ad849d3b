//! What a gate measured so far, one line of JSON each: a run that was interrupted goes on where it stopped, and the verdict is made of
//! what is kept.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::GateError;

/// Results by name. In memory alone unless it was opened on a file.
#[derive(Debug, Default)]
pub struct Store {
    known: HashMap<String, Value>,
    file: Option<(PathBuf, File)>,
}

impl Store {
    /// Opens a file, or begins it. `options` says what was asked for: results of other options are no answer to it.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds results of other options.
    pub fn open(path: &Path, options: &Value) -> Result<Self, GateError> {
        let trouble = |source| GateError::Store {
            path: path.into(),
            source,
        };
        let text = if path.exists() {
            fs::read_to_string(path).map_err(trouble)?
        } else {
            String::new()
        };
        let mut lines = text.lines();
        let mut store = Self::default();
        if let Some(first) = lines.next()
            && serde_json::from_str::<Value>(first).ok().as_ref() != Some(options)
        {
            return Err(GateError::OtherOptions { path: path.into() });
        }
        // A run that was killed while it wrote leaves half a line; it is measured again.
        for line in lines {
            let entry: Option<Value> = serde_json::from_str(line).ok();
            if let Some((key, found)) = entry
                .and_then(|entry| Some((entry["key"].as_str()?.to_owned(), entry["found"].clone())))
            {
                store.known.insert(key, found);
            }
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(trouble)?;
        if text.is_empty() {
            writeln!(file, "{options}").map_err(trouble)?;
        } else if !text.ends_with('\n') {
            writeln!(file).map_err(trouble)?;
        }
        store.file = Some((path.into(), file));
        Ok(store)
    }

    /// Results that were there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
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
            && let Ok(found) = serde_json::from_value(found.clone())
        {
            return Ok(found);
        }
        let found = measure()?;
        if let Some((path, file)) = &mut self.file {
            let line = json!({ "key": key, "found": found });
            writeln!(file, "{line}").map_err(|source| GateError::Store {
                path: path.clone(),
                source,
            })?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_not_measured_again_and_half_a_line_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let options = json!({"seed": 1});
        let mut store = Store::open(&path, &options).unwrap();
        assert_eq!(store.get("a", || Ok(1.5f32)).unwrap(), 1.5);
        assert_eq!(store.get("b", || Ok(2.5f32)).unwrap(), 2.5);
        drop(store);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 4]).unwrap();

        let mut store = Store::open(&path, &options).unwrap();
        assert_eq!(store.len(), 1);
        assert_eq!(store.get("a", || Ok(9.0f32)).unwrap(), 1.5);
        assert_eq!(store.get("b", || Ok(3.5f32)).unwrap(), 3.5);
        drop(store);
        let mut store = Store::open(&path, &options).unwrap();
        assert_eq!(store.get("b", || Ok(9.0f32)).unwrap(), 3.5);
    }

    #[test]
    fn results_of_other_options_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        drop(Store::open(&path, &json!({"seed": 1})).unwrap());
        let error = Store::open(&path, &json!({"seed": 2})).unwrap_err();
        assert!(error.to_string().contains("other options"), "{error}");
    }
}
