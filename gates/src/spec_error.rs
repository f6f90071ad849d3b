//! What can be wrong with a spec.

use crate::spec::Spec;

/// Why a spec cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no such file, and no built-in spec of that name.
    #[error(
        "cannot read the spec {file}: {source}\n  next: check the path, or give the name of a built-in one: {}",
        names()
    )]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such built-in spec.
    #[error("there is no built-in spec {name:?}\n  next: take one of {}", names())]
    NotBuiltIn {
        /// What was asked for.
        name: String,
    },
    /// It is no TOML, or a key is missing, unknown or of another type.
    #[error(
        "{file} is not a spec: {message}\n  next: compare it with a built-in one: rolling-kv gate run --print logit-equiv"
    )]
    Form {
        /// The file.
        file: String,
        /// What the parser says: line, column, key and what is allowed.
        message: String,
    },
    /// It is of another version.
    #[error(
        "{file}, line {line}: version {found} of specs is not known\n  next: write it as version {known}, or use the program that it was written for"
    )]
    Version {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// Its version.
        found: i64,
        /// The version that is known.
        known: i64,
    },
    /// It names no gate.
    #[error("{file}, line {line}: there is no gate {found:?}\n  next: name one of {allowed}")]
    Gate {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// What it names.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// The gate has no such threshold.
    #[error(
        "{file}, line {line}: the gate has no threshold {name:?}\n  next: name one of {allowed}"
    )]
    Threshold {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// What it names.
        name: String,
        /// What is allowed.
        allowed: String,
    },
    /// A threshold's number cannot be judged by.
    #[error(
        "{file}, line {line}: {found} cannot be the threshold {name}\n  next: give a number from 0 up"
    )]
    Number {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// The threshold.
        name: String,
        /// Its number.
        found: f64,
    },
    /// A threshold has an empty reason.
    #[error(
        "{file}, line {line}: the threshold {name} has no reason\n  next: say in `why` why it is this number"
    )]
    Reason {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// The threshold.
        name: String,
    },
    /// An option's value is nothing that a command line could hold.
    #[error(
        "{file}, line {line}: the option {name} is a {found}\n  next: give a string, a number or a list of those"
    )]
    Value {
        /// The file.
        file: String,
        /// The line.
        line: usize,
        /// The option.
        name: String,
        /// Its type.
        found: &'static str,
    },
    /// The thresholds are not those that the gate has.
    #[error(
        "the thresholds of {file} are not those of the gate {gate}: {message}\n  next: give a spec of that gate"
    )]
    OtherGate {
        /// The file.
        file: String,
        /// The gate.
        gate: &'static str,
        /// What differs.
        message: String,
    },
}

fn names() -> String {
    Spec::names().collect::<Vec<_>>().join(", ")
}
