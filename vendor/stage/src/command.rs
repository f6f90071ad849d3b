//! Runs a program with its output in a log file.

use crate::error::{Error, IoContext, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 40;

/// Runs `command`, appending stdout and stderr to `log`, and calls `line` for each line of stdout.
///
/// # Errors
/// [`Error::Start`] or [`Error::Command`].
pub(crate) fn run(
    command: &mut Command,
    doing: &str,
    log: &Path,
    mut line: impl FnMut(&str),
) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .at("open", log)?;
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .collect();
    writeln!(file, "$ {words:?}").at("write", log)?;
    let errors = file.try_clone().at("open", log)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut child = command.spawn().map_err(|cause| Error::Start {
        program: program.clone(),
        doing: doing.to_owned(),
        cause,
    })?;
    if let Some(output) = child.stdout.take() {
        for bytes in BufReader::new(output).split(b'\n') {
            let text = String::from_utf8_lossy(&bytes.at("read the output for", log)?).into_owned();
            writeln!(file, "{text}").at("write", log)?;
            line(&text);
        }
    }
    let status = child.wait().at("wait for a program writing", log)?;
    if status.success() {
        return Ok(());
    }
    let tail = tail(log, TAIL_LINES);
    Err(Error::Command {
        program,
        status: status.to_string(),
        doing: doing.to_owned(),
        log: log.to_owned(),
        tail,
    })
}

/// The last lines of a file; a note where it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("(the log cannot be read: {error})"),
    }
}

/// What a program prints, without the line end; `None` where it fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| {
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    })
}
