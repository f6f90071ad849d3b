//! One link a process: the same program with the same options and one of the links.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rolling_kv::StateBlob;
use rolling_kv_gates::{EnginesLink, GateError};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::device::Rate;
use crate::exit;
use crate::line::Asked;

/// What a process is told in another way, or not at all.
const NOT_PASSED: [&str; 5] = ["links", "json", "html", "plot", "results"];

/// How the option for a fault is shown where there is none.
const NO_FAULT: (&str, &str) = ("inject", "nothing");

/// What one process needs to know of another's.
pub struct Apart {
    /// Options that hold for every link.
    words: Vec<String>,
    /// Where results are kept.
    results: Option<PathBuf>,
    /// The text, and what a process found.
    folder: TempDir,
}

impl Apart {
    pub fn new(asked: &Asked, results: Option<&Path>) -> Result<Self, GateError> {
        let options = asked.options().iter();
        let options = options.map(|(name, value)| (name.as_str(), value.as_str()));
        let passed =
            options.filter(|option| *option != NO_FAULT && !NOT_PASSED.contains(&option.0));
        Ok(Self {
            words: passed
                .map(|(name, value)| format!("--{name}={value}"))
                .collect(),
            results: results.map(Path::to_owned),
            folder: tempfile::tempdir().map_err(|source| trouble(&std::env::temp_dir(), source))?,
        })
    }

    fn text(&self) -> PathBuf {
        self.folder.path().join("text.state")
    }

    /// Whether the text is there already.
    pub fn has_text(&self) -> bool {
        self.text().is_file()
    }

    /// Keeps the text as it was read, for the processes to come.
    pub fn keep_text(&self, saved: &StateBlob) -> Result<(), GateError> {
        let path = self.text();
        fs::write(&path, saved.as_bytes()).map_err(|source| trouble(&path, source))
    }

    /// What a process finds behind this link. Its bars and what is wrong with it go to standard error.
    pub fn measure(&self, link: &Rate) -> Result<EnginesLink, GateError> {
        let json = self.folder.path().join("found.json");
        let failed = |why: String| GateError::Apart {
            what: format!("a link of {link}"),
            why,
        };
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command
            .args(["gate", "engines"])
            .args(&self.words)
            .arg(format!("--links={link}"))
            .arg("--saved")
            .arg(self.text())
            .arg("--json")
            .arg(&json)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(results) = &self.results {
            command.arg("--results").arg(results.join(folder_of(link)));
        }
        let ended = command.status();
        let ended = ended.map_err(|error| failed(error.to_string()))?;
        // Whether it passed is judged of all links together.
        if ![exit::OK, exit::FAILURE]
            .map(i32::from)
            .contains(&ended.code().unwrap_or(-1))
        {
            return Err(failed(format!(
                "it ended with {ended}; what it says stands above"
            )));
        }
        let file = File::open(&json).map_err(|source| trouble(&json, source))?;
        let found: Value = serde_json::from_reader(BufReader::new(file))
            .map_err(|error| failed(error.to_string()))?;
        EnginesLink::deserialize(&found["metrics"]["links"][0])
            .map_err(|error| failed(error.to_string()))
    }
}

/// The folder of one link's results, in that of all.
fn folder_of(link: &Rate) -> String {
    format!("link-{link}").replace('/', "-")
}

fn trouble(path: &Path, source: io::Error) -> GateError {
    GateError::Store {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = line.split(' ').map(Into::into);
        let line = crate::line::read(words).unwrap();
        Apart::new(&line.asked, None).unwrap().words
    }

    #[test]
    fn a_process_gets_every_option_but_the_links_and_the_files() {
        let line = "rolling-kv gate engines -m tiny:llama --links 1GB/s,2GB/s --json f --results d --threads 1";
        let words = words(line);
        for word in [
            "--model=tiny:llama",
            "--host-rate=16GB/s",
            "--threads=1",
            "--tile-cells=128",
            "--tail-percent=25,50,100",
        ] {
            assert!(
                words.iter().any(|one| one == word),
                "no {word} in {words:?}"
            );
        }
        for name in NOT_PASSED.into_iter().chain(["saved", NO_FAULT.0]) {
            let start = format!("--{name}=");
            assert!(
                !words.iter().any(|one| one.starts_with(&start)),
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_fault_is_passed_on_and_none_is_not() {
        let fault = words("rolling-kv gate engines -m x --inject half-rates");
        assert!(
            fault.contains(&"--inject=half-rates".to_owned()),
            "{fault:?}"
        );
    }

    #[test]
    fn the_folder_of_a_link_is_one_name() {
        assert_eq!(folder_of(&Rate::parse("6.4GB/s").unwrap()), "link-6.4GB-s");
    }
}
