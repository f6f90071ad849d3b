//! A spec: a file that says what a gate is asked, and by which numbers it is judged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use crate::spec_error::SpecError;
use crate::threshold::Threshold;

/// The version of the form of specs that this crate reads.
const VERSION: i64 = 1;

/// The gates that a spec may name.
pub const GATES: &[&str] = &[
    "logit-equiv",
    "niah",
    "cliff",
    "engines",
    "shift",
    "budget",
    "plan",
];

/// The specs that are compiled in. The one with the name of a gate holds all of its thresholds.
const BUILT_IN: &[(&str, &str)] = &[
    ("logit-equiv", include_str!("../specs/logit-equiv.toml")),
    ("niah", include_str!("../specs/niah.toml")),
    ("niah-all", include_str!("../specs/niah-all.toml")),
    ("cliff", include_str!("../specs/cliff.toml")),
    ("engines", include_str!("../specs/engines.toml")),
    ("engines-all", include_str!("../specs/engines-all.toml")),
    ("shift", include_str!("../specs/shift.toml")),
    ("budget", include_str!("../specs/budget.toml")),
    ("plan", include_str!("../specs/plan.toml")),
];

/// What a gate is asked, and by which numbers it is judged.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// The file, or the name of a built-in one, for messages.
    pub file: String,
    /// The gate; one of [`GATES`].
    pub gate: String,
    /// What it is for.
    pub about: String,
    /// Options as they are given on the command line, in the order of the file.
    pub options: Vec<SpecOption>,
    /// Every threshold of the gate: those of the file, and the built-in ones where it names none.
    pub thresholds: BTreeMap<String, Threshold>,
}

/// One option of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecOption {
    /// Its name on the command line, without the two hyphens.
    pub name: String,
    /// Its value as one writes it there; a list has commas.
    pub value: String,
    /// The line of the file that it stands in.
    pub line: usize,
}

/// The thresholds of one gate, with a field for each.
pub trait Thresholds: DeserializeOwned {
    /// The gate that they are of.
    const GATE: &'static str;

    /// Those of the built-in spec.
    ///
    /// # Errors
    /// Never for this crate's own gates; its tests see to that.
    fn built_in() -> Result<Self, SpecError> {
        Spec::built_in(Self::GATE)?.thresholds()
    }
}

/// The version alone: what else a file of another version holds is not for us to judge.
#[derive(Deserialize)]
struct Head {
    version: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "version")]
    _version: i64,
    gate: Spanned<String>,
    about: String,
    #[serde(default)]
    options: BTreeMap<Spanned<String>, Value>,
    #[serde(default)]
    thresholds: BTreeMap<Spanned<String>, Threshold>,
}

impl Spec {
    /// Reads a file; where there is none, a built-in spec of that name is taken.
    ///
    /// # Errors
    /// When it cannot be read, or is not a spec.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let name = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&name, &text),
            Err(_) if text_of(&name).is_some() && !path.exists() => Self::built_in(&name),
            Err(source) => Err(SpecError::Read { file: name, source }),
        }
    }

    /// The built-in spec of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn built_in(name: &str) -> Result<Self, SpecError> {
        let text = text_of(name).ok_or_else(|| SpecError::NotBuiltIn { name: name.into() })?;
        Self::parse(name, text)
    }

    /// The text of a built-in spec, to read and to copy.
    #[must_use]
    pub fn text(name: &str) -> Option<&'static str> {
        text_of(name)
    }

    /// The names of the built-in specs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a spec's text. `file` is what messages call it.
    ///
    /// # Errors
    /// When it is not a spec. The message names the line, the key, and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, SpecError> {
        let raw = raw(file, text)?;
        let gate = raw.gate.into_inner();
        let own = raw_thresholds(&gate)?;
        let options = raw.options.into_iter().map(|(name, value)| {
            let line = line(text, name.span().start);
            option(file, line, name.into_inner(), &value)
        });
        let mut options = options.collect::<Result<Vec<_>, _>>()?;
        options.sort_by_key(|option| option.line);
        let mut thresholds = own.clone();
        for (name, threshold) in raw.thresholds {
            let line = line(text, name.span().start);
            let name = name.into_inner();
            if !own.contains_key(&name) {
                return Err(SpecError::Threshold {
                    file: file.into(),
                    line,
                    name,
                    allowed: own.into_keys().collect::<Vec<_>>().join(", "),
                });
            }
            check(file, line, &name, &threshold)?;
            thresholds.insert(name, threshold);
        }
        Ok(Self {
            file: file.into(),
            gate,
            about: raw.about,
            options,
            thresholds,
        })
    }

    /// The thresholds, with a field for each.
    ///
    /// # Errors
    /// When they are those of another gate.
    pub fn thresholds<T: Thresholds>(&self) -> Result<T, SpecError> {
        let wrong = |message: String| SpecError::OtherGate {
            file: self.file.clone(),
            gate: T::GATE,
            message,
        };
        if self.gate != T::GATE {
            return Err(wrong(format!("it is of {}", self.gate)));
        }
        serde_json::to_value(&self.thresholds)
            .and_then(serde_json::from_value)
            .map_err(|error| wrong(error.to_string()))
    }
}

fn text_of(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// The form and the names of a spec; values are checked by who knows what is allowed.
fn raw(file: &str, text: &str) -> Result<Raw, SpecError> {
    let not_a_spec = |error: toml::de::Error| SpecError::Form {
        file: file.into(),
        message: error.to_string().trim_end().to_owned(),
    };
    let head: Head = toml::from_str(text).map_err(not_a_spec)?;
    if *head.version.get_ref() != VERSION {
        return Err(SpecError::Version {
            file: file.into(),
            line: line(text, head.version.span().start),
            found: head.version.into_inner(),
            known: VERSION,
        });
    }
    let raw: Raw = toml::from_str(text).map_err(not_a_spec)?;
    if !GATES.contains(&raw.gate.get_ref().as_str()) {
        return Err(SpecError::Gate {
            file: file.into(),
            line: line(text, raw.gate.span().start),
            found: raw.gate.into_inner(),
            allowed: GATES.join(", "),
        });
    }
    Ok(raw)
}

/// The thresholds of a gate's own spec.
fn raw_thresholds(gate: &str) -> Result<BTreeMap<String, Threshold>, SpecError> {
    let text = text_of(gate).ok_or_else(|| SpecError::NotBuiltIn { name: gate.into() })?;
    let thresholds = raw(gate, text)?.thresholds.into_iter();
    Ok(thresholds
        .map(|(name, threshold)| (name.into_inner(), threshold))
        .collect())
}

/// A threshold that is no number, or that everything passes, would make a gate that cannot fail.
fn check(file: &str, line: usize, name: &str, threshold: &Threshold) -> Result<(), SpecError> {
    let place = || (file.to_owned(), name.to_owned());
    if !threshold.value.is_finite() || threshold.value < 0.0 {
        let (file, name) = place();
        return Err(SpecError::Number {
            file,
            line,
            name,
            found: threshold.value,
        });
    }
    if threshold.why.trim().is_empty() {
        let (file, name) = place();
        return Err(SpecError::Reason { file, line, name });
    }
    Ok(())
}

fn option(file: &str, line: usize, name: String, value: &Value) -> Result<SpecOption, SpecError> {
    match word(value) {
        Some(value) => Ok(SpecOption { name, value, line }),
        None => Err(SpecError::Value {
            file: file.into(),
            line,
            name,
            found: value.type_str(),
        }),
    }
}

/// A value as one writes it on the command line.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(list) if list.iter().all(|one| !one.is_array()) => {
            let words: Option<Vec<String>> = list.iter().map(word).collect();
            words.map(|words| words.join(","))
        }
        _ => None,
    }
}

/// The line of a byte, from 1.
fn line(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    1 + before.filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
