//! The command line as it holds: a spec's options in their places, and every option with its value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use rolling_kv_gates::{Spec, SpecError, Threshold, Thresholds};

use crate::args::Cli;
use crate::gate::{GateCommandError, spec_words};
use crate::run;

/// What the program is to do.
pub struct Line {
    pub cli: Cli,
    pub asked: Asked,
}

/// What a command was asked: every option that holds, and the spec that some of them come from.
pub struct Asked {
    spec: Option<Spec>,
    options: Vec<(String, String)>,
}

/// Reads the command line. `gate run SPEC` becomes the gate that the spec names; help and mistakes end the program.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Line, GateCommandError> {
    let matches = Cli::command().get_matches_from(words);
    let Some((spec, words)) = spec_words::of(&matches)? else {
        return Ok(line(&matches, None));
    };
    let mut line = line(&Cli::command().get_matches_from(words), Some(spec));
    line.cli.verbose += matches.get_count("verbose");
    Ok(line)
}

fn line(matches: &ArgMatches, spec: Option<Spec>) -> Line {
    let cli = Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let (mut command, mut leaf) = (Cli::command(), matches);
    while let Some((name, below)) = leaf.subcommand() {
        let found = command.find_subcommand(name).cloned();
        command = found.unwrap_or_default();
        leaf = below;
    }
    let options = options(&command, leaf);
    Line {
        cli,
        asked: Asked { spec, options },
    }
}

impl Asked {
    /// The spec that was given, or the gate's own, whose options do not count then.
    fn spec(&self, gate: &str) -> Result<Cow<'_, Spec>, SpecError> {
        match &self.spec {
            Some(spec) => Ok(Cow::Borrowed(spec)),
            None => Spec::built_in(gate).map(Cow::Owned),
        }
    }

    /// The thresholds of a gate, with a field for each.
    pub fn thresholds<T: Thresholds>(&self) -> Result<T, SpecError> {
        self.spec(T::GATE)?.thresholds()
    }

    /// The same by name.
    pub fn threshold_list(&self, gate: &str) -> Result<BTreeMap<String, Threshold>, SpecError> {
        Ok(self.spec(gate)?.into_owned().thresholds)
    }

    /// The file of the spec that was given.
    pub fn spec_file(&self) -> Option<&str> {
        self.spec.as_ref().map(|spec| spec.file.as_str())
    }

    /// Every option and its value.
    pub fn options(&self) -> &[(String, String)] {
        &self.options
    }
}

/// Every option that has a value, or of which it is known what it is without one.
fn options(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let given: Vec<&Arg> = with_values(command)
        .filter(|arg| source(matches, arg) == Some(ValueSource::CommandLine))
        .collect();
    let mut options = Vec::new();
    for arg in with_values(command) {
        let name = arg.get_long().unwrap_or_default();
        let replaced = given.iter().any(|other| conflict(command, arg, other));
        let value = match matches.get_raw(arg.get_id().as_str()) {
            Some(words) if !replaced => {
                let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
                Some(words.join(","))
            }
            Some(_) => None,
            None => without_a_value(name),
        };
        options.extend(value.map(|value| (name.to_owned(), value)));
    }
    options
}

/// The options of a command that have a name and a value. What one process of ours tells another is hidden from users, and none.
pub fn with_values(command: &Command) -> impl Iterator<Item = &Arg> {
    let shown = |arg: &&Arg| !arg.is_hide_set();
    command
        .get_arguments()
        .filter(shown)
        .filter(|arg| arg.get_long().is_some() && arg.get_action().takes_values())
}

/// Where the value of an option comes from.
pub fn source(matches: &ArgMatches, arg: &Arg) -> Option<ValueSource> {
    matches.value_source(arg.get_id().as_str())
}

/// Whether one of two options excludes the other.
pub fn conflict(command: &Command, one: &Arg, other: &Arg) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        let excluded = command.get_arg_conflicts_with(one);
        excluded.iter().any(|arg| arg.get_id() == other.get_id())
    };
    excludes(one, other) || excludes(other, one)
}

/// What an option is that nobody gave and that has no default in words.
fn without_a_value(name: &str) -> Option<String> {
    Some(match name {
        "threads" => run::fitting_threads().to_string(),
        "text" => "built in".into(),
        "device" => "CPU".into(),
        "inject" => "nothing".into(),
        "tile-cells" => "128".into(),
        "tail-type" => "the cache's".into(),
        "vram" => "half of what the whole cache takes".into(),
        "ring-depth" => "chosen by the device".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Asked {
        let words = words.split(' ').map(OsString::from);
        read(words).unwrap().asked
    }

    fn value(asked: &Asked, name: &str) -> Option<String> {
        let found = asked.options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    #[test]
    fn every_option_of_every_gate_has_a_value_or_is_a_file_to_write() {
        let mut cli = Cli::command();
        cli.build();
        let gates = cli.find_subcommand("gate").unwrap();
        for gate in rolling_kv_gates::GATES {
            let asked = asked(&format!("rolling-kv gate {gate} -m x"));
            for arg in with_values(gates.find_subcommand(gate).unwrap()) {
                let name = arg.get_long().unwrap();
                let without = ["json", "html", "results", "plot", "window-percent"];
                assert!(
                    value(&asked, name).is_some() || without.contains(&name),
                    "{gate} {name}"
                );
            }
        }
    }

    #[test]
    fn what_excludes_a_default_takes_its_place() {
        let default = asked("rolling-kv gate logit-equiv -m x");
        assert_eq!(value(&default, "window-cells").as_deref(), Some("1024"));
        let percent = asked("rolling-kv gate logit-equiv -m x --window-percent 50,25");
        assert_eq!(value(&percent, "window-percent").as_deref(), Some("50,25"));
        assert_eq!(value(&percent, "window-cells"), None);
    }
}
