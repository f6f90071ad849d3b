//! `gate run SPEC OPTIONS` as the words of the gate that the spec names: the spec's options, then the user's.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};
use rolling_kv_gates::{Spec, SpecOption};

use super::error::GateCommandError;
use crate::args::Cli;
use crate::line::{conflict, source, with_values};

/// The spec and the words; nothing when the command line is not of that kind. The words hold what the spec says only where the user
/// says nothing, so that a list of the user's takes the place of the spec's.
pub fn of(matches: &ArgMatches) -> Result<Option<(Spec, Vec<OsString>)>, GateCommandError> {
    let run = matches
        .subcommand_matches("gate")
        .and_then(|gate| gate.subcommand_matches("run"));
    let Some((run, path)) = run.and_then(|run| Some((run, run.get_one::<PathBuf>("spec")?))) else {
        return Ok(None);
    };
    let spec = Spec::read(path)?;
    let own = run.get_many::<OsString>("options").into_iter().flatten();
    let words = words(&spec, &own.cloned().collect::<Vec<_>>())?;
    Ok(Some((spec, words)))
}

fn words(spec: &Spec, own: &[OsString]) -> Result<Vec<OsString>, GateCommandError> {
    let gate = gate(&spec.gate);
    check(spec, &gate)?;
    let start = ["rolling-kv", "gate", &spec.gate].map(OsString::from);
    // Wrong words of the user's are left alone, so that what is wrong with them is said and nothing else.
    let Ok(matches) = parse(&gate, own) else {
        return Ok(start.into_iter().chain(own.iter().cloned()).collect());
    };
    let given: Vec<&Arg> = with_values(&gate)
        .filter(|arg| source(&matches, arg) == Some(ValueSource::CommandLine))
        .collect();
    let is_given = |option: &SpecOption| {
        let arg = with_values(&gate).find(|arg| arg.get_long() == Some(&option.name));
        arg.is_some_and(|arg| {
            let same = |other: &&Arg| other.get_id() == arg.get_id();
            given
                .iter()
                .any(|other| same(other) || conflict(&gate, arg, other))
        })
    };
    let kept = spec.options.iter().filter(|option| !is_given(option));
    let words = start.into_iter().chain(kept.map(word));
    Ok(words.chain(own.iter().cloned()).collect())
}

/// The command of a gate, in which nothing is required.
fn gate(name: &str) -> Command {
    let mut cli = Cli::command();
    cli.build();
    let gate = cli
        .find_subcommand("gate")
        .and_then(|gate| gate.find_subcommand(name));
    let gate = gate.cloned().unwrap_or_default();
    gate.mut_args(|arg| arg.required(false))
}

/// Names and values are those that the command line allows, one by one and together.
fn check(spec: &Spec, gate: &Command) -> Result<(), GateCommandError> {
    let refused = |line: Option<usize>, words: Vec<OsString>| {
        let Err(error) = parse(gate, &words) else {
            return Ok(());
        };
        Err(GateCommandError::SpecOption {
            place: line.map_or(spec.file.clone(), |line| {
                format!("{}, line {line}", spec.file)
            }),
            message: essence(&error),
            gate: spec.gate.clone(),
        })
    };
    for option in &spec.options {
        if !with_values(gate).any(|arg| arg.get_long() == Some(&option.name)) {
            let known = with_values(gate).filter_map(Arg::get_long);
            return Err(GateCommandError::UnknownSpecOption {
                file: spec.file.clone(),
                line: option.line,
                name: option.name.clone(),
                gate: spec.gate.clone(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        }
        refused(Some(option.line), vec![word(option)])?;
    }
    refused(None, spec.options.iter().map(word).collect())
}

fn word(option: &SpecOption) -> OsString {
    format!("--{}={}", option.name, option.value).into()
}

fn parse(gate: &Command, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let name = OsString::from("gate");
    gate.clone()
        .try_get_matches_from(std::iter::once(&name).chain(words))
}

/// What is wrong, without the advice that fits a command line only.
fn essence(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words behind the gate's name.
    #[track_caller]
    fn merged(name: &str, options: &str, own: &[&str]) -> Result<Vec<String>, String> {
        let text =
            format!("version = 1\ngate = {name:?}\nabout = \"a test\"\n[options]\n{options}\n");
        let spec = Spec::parse("mine.toml", &text).unwrap();
        let own: Vec<OsString> = own.iter().map(OsString::from).collect();
        let words = words(&spec, &own).map_err(|error| error.to_string())?;
        let words = words.into_iter().map(|word| word.into_string().unwrap());
        Ok(words.skip(3).collect())
    }

    #[test]
    fn what_the_user_gives_takes_the_place_of_what_the_spec_says() {
        let options = "model = \"a\"\nlengths = [512, 1024]\nseed = 7";
        let own = ["-m", "b", "--lengths", "320", "-v"];
        assert_eq!(
            merged("niah", options, &own).unwrap(),
            ["--seed=7", "-m", "b", "--lengths", "320", "-v"]
        );
        assert_eq!(
            merged("niah", options, &[]).unwrap(),
            ["--model=a", "--lengths=512,1024", "--seed=7"]
        );
    }

    #[test]
    fn what_the_user_gives_also_drives_out_what_it_excludes() {
        let percent = "model = \"a\"\nwindow-percent = [50, 25]";
        let own = ["--window-cells", "64"];
        assert_eq!(
            merged("logit-equiv", percent, &own).unwrap(),
            ["--model=a", "--window-cells", "64"]
        );
        let cells = "model = \"a\"\nwindow-cells = 64";
        let own = ["--window-percent", "50"];
        assert_eq!(
            merged("logit-equiv", cells, &own).unwrap(),
            ["--model=a", "--window-percent", "50"]
        );
    }

    #[test]
    fn what_the_command_line_would_refuse_is_named_with_its_place_in_the_spec() {
        for (options, words) in [
            ("lenghts = 5", &["line 5", "lenghts", "lengths, depths"][..]),
            ("\nlengths = \"x\"", &["line 6", "--lengths", "number"]),
            ("window-percent = 99", &["line 5", "0..=95"]),
            ("tasks = [\"a\"]", &["line 5", "niah_single_1"]),
            ("inject = \"swap\"", &["line 5", "possible values", "stale"]),
            ("help = \"x\"", &["line 5", "help"]),
        ] {
            let error = merged("niah", options, &[]).unwrap_err();
            for word in words.iter().chain(&["mine.toml", "next: "]) {
                assert!(error.contains(word), "no {word:?} in: {error}");
            }
        }
        let both = "window-cells = 64\nwindow-percent = 50";
        let error = merged("logit-equiv", both, &[]).unwrap_err();
        assert!(error.contains("mine.toml: ") && error.contains("cannot be used with"));
    }

    #[test]
    fn every_built_in_spec_is_a_command_line() {
        for name in Spec::names() {
            let spec = Spec::built_in(name).unwrap();
            assert_eq!(words(&spec, &[]).unwrap().len(), 3 + spec.options.len());
        }
    }

    #[test]
    fn every_gate_that_a_spec_may_name_is_a_command() {
        for name in rolling_kv_gates::GATES {
            assert!(with_values(&gate(name)).count() > 3, "{name}");
        }
    }
}
