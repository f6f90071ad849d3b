//! What a gate was asked, as it is printed before anything is done and written into each report.

use std::fmt;

use serde::Serialize;

use crate::threshold::{Threshold, exact};

/// What a gate was asked.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Settings {
    /// What was run, such as `gate niah`.
    pub name: String,
    /// The spec that it follows, if it follows one.
    pub spec: Option<String>,
    /// Every option and its value, in the order of the help page.
    pub options: Vec<(String, String)>,
    /// By which numbers it is judged.
    pub thresholds: Vec<(String, Threshold)>,
}

impl Settings {
    /// The settings of what is run.
    #[must_use]
    pub fn new(
        name: String,
        spec: Option<String>,
        options: Vec<(String, String)>,
        thresholds: Vec<(String, Threshold)>,
    ) -> Self {
        Self {
            name,
            spec,
            options,
            thresholds,
        }
    }

    /// The value of an option.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let names = self.options.iter().map(|(name, _)| name);
        let names = names.chain(self.thresholds.iter().map(|(name, _)| name));
        let width = names.map(|name| name.len()).max().unwrap_or(0).max(4);
        if let Some(spec) = &self.spec {
            writeln!(f, "  {:<width$}  {spec}", "spec")?;
        }
        for (name, value) in &self.options {
            writeln!(f, "  {name:<width$}  {value}")?;
        }
        if !self.thresholds.is_empty() {
            writeln!(f, "thresholds")?;
        }
        for (name, threshold) in &self.thresholds {
            let value = exact(threshold.value);
            writeln!(f, "  {name:<width$}  {value}: {}", threshold.why)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_and_every_reason_has_a_line() {
        let threshold = Threshold {
            value: 0.5,
            why: "because".into(),
        };
        let settings = Settings::new(
            "gate niah".into(),
            Some("mine.toml".into()),
            vec![("seed".into(), "7".into())],
            vec![("resident-score".into(), threshold)],
        );
        assert_eq!(
            settings.to_string(),
            "gate niah\n  spec            mine.toml\n  seed            7\n\
             thresholds\n  resident-score  0.5: because\n"
        );
        assert_eq!(settings.option("seed"), Some("7"));
    }
}
