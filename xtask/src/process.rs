//! Running other programs: what they print is seen as it comes, kept, and quoted when they fail.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How many of a failed program's last lines its error quotes.
const TAIL_LINES: usize = 25;

/// One of a program's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A program to run.
#[derive(Debug)]
pub struct Run {
    command: Command,
    limit: Option<Duration>,
    next: String,
}

/// What a program that ended has left.
#[derive(Debug)]
pub struct Ended {
    command: String,
    next: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output, byte for byte.
    pub stdout: Vec<u8>,
    /// What it wrote to either stream, in the order it came.
    pub text: String,
}

impl Run {
    /// Runs `program`, with nothing on its standard input.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Self {
            command,
            limit: None,
            next: "read the lines above, correct what they name and run the command again".into(),
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Starts from an empty environment.
    pub fn env_clear(mut self) -> Self {
        self.command.env_clear();
        self
    }

    /// Runs in `dir`.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Stops the program after `limit`.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What to do when the program is missing or fails; part of the error.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Runs the program and keeps what it prints.
    pub fn quietly(self) -> Result<Ended> {
        self.watched(|_, _| ())
    }

    /// Runs the program, shows what it prints on our standard error, and keeps it.
    pub fn shown(self) -> Result<Ended> {
        self.watched(|_, line| eprintln!("{line}"))
    }

    /// Runs the program with our own streams: for programs that talk to the person in front.
    pub fn attached(mut self) -> Result<()> {
        let command = shown_command(&self.command);
        let status = self
            .command
            .status()
            .map_err(|source| self.cannot_start(source))?;
        let ended = Ended {
            command,
            next: self.next,
            status,
            stdout: Vec::new(),
            text: String::new(),
        };
        ended.success().map(drop)
    }

    /// Runs the program and answers what it writes to standard output; its standard error is ours.
    pub fn answer(mut self) -> Result<String> {
        let command = shown_command(&self.command);
        self.command.stderr(Stdio::inherit());
        let output = self
            .command
            .output()
            .map_err(|source| self.cannot_start(source))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let ended = Ended {
            command,
            next: self.next,
            status: output.status,
            stdout: output.stdout,
            text: String::new(),
        };
        ended.success()?;
        Ok(text)
    }

    /// Starts the program with its output discarded or sent to `log`, and returns at once.
    pub fn spawned(mut self, log: std::fs::File) -> Result<Child> {
        let copy = log
            .try_clone()
            .map_err(|source| self.cannot_start(source))?;
        self.command.stdout(log).stderr(copy);
        self.command
            .spawn()
            .map_err(|source| self.cannot_start(source))
    }

    /// Runs the program and hands each line that it prints to `on_line`.
    pub fn watched(mut self, mut on_line: impl FnMut(Stream, &str)) -> Result<Ended> {
        let command = shown_command(&self.command);
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .map_err(|source| self.cannot_start(source))?;
        let (send, receive) = mpsc::channel();
        forward(child.stdout.take(), Stream::Out, send.clone());
        forward(child.stderr.take(), Stream::Err, send);

        let started = Instant::now();
        let (mut stdout, mut text) = (Vec::new(), String::new());
        loop {
            match receive.recv_timeout(Duration::from_millis(200)) {
                Ok((stream, bytes)) => {
                    let line = String::from_utf8_lossy(&bytes);
                    on_line(stream, line.trim_end_matches(['\n', '\r']));
                    text.push_str(&line);
                    if stream == Stream::Out {
                        stdout.extend_from_slice(&bytes);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(limit) = self.limit.filter(|limit| started.elapsed() > *limit) {
                child
                    .kill()
                    .and_then(|()| child.wait())
                    .map_err(|source| self.cannot_start(source))?;
                return Err(Error::TimedOut {
                    command,
                    seconds: limit.as_secs(),
                    tail: tail(&text),
                    next: self.next,
                });
            }
        }
        let status = child.wait().map_err(|source| self.cannot_start(source))?;
        Ok(Ended {
            command,
            next: self.next,
            status,
            stdout,
            text,
        })
    }

    fn cannot_start(&self, source: std::io::Error) -> Error {
        Error::Start {
            program: self.command.get_program().to_string_lossy().into_owned(),
            source,
            next: self.next.clone(),
        }
    }
}

impl Ended {
    /// The result, if the program reported success; else an error that quotes its last lines.
    pub fn success(self) -> Result<Self> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(self.failure())
        }
    }

    /// The error that says how this program ended.
    pub fn failure(&self) -> Error {
        Error::Ended {
            command: self.command.clone(),
            ended: in_words(self.status),
            tail: tail(&self.text),
            next: self.next.clone(),
        }
    }
}

/// How a program ended, in words.
pub fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Sends each line of a pipe, its line end included.
fn forward(
    pipe: Option<impl Read + Send + 'static>,
    stream: Stream,
    send: Sender<(Stream, Vec<u8>)>,
) {
    let Some(pipe) = pipe else { return };
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    if send.send((stream, line)).is_err() {
                        break;
                    }
                }
            }
        }
    });
}

/// A command line as one would type it.
fn shown_command(command: &Command) -> String {
    let quoted = |part: &OsStr| {
        let part = part.to_string_lossy();
        if part.is_empty() || part.contains([' ', '\n', '\'', '"', '*', '|']) {
            format!("{part:?}")
        } else {
            part.into_owned()
        }
    };
    let mut words: Vec<OsString> = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(OsStr::to_owned));
    words
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_are_kept_and_stdout_byte_for_byte() {
        let ended = Run::new("sh")
            .args(["-c", "printf 'a\\377b'; echo warning >&2"])
            .quietly()
            .unwrap();
        assert_eq!(ended.stdout, b"a\xffb");
        assert!(ended.text.contains("warning"));
    }

    #[test]
    fn a_failure_names_the_command_its_code_and_its_last_lines() {
        let error = Run::new("sh")
            .args(["-c", "echo no such thing; exit 3"])
            .next("try another")
            .quietly()
            .unwrap()
            .success()
            .unwrap_err();
        let text = error.to_string();
        for part in ["sh -c", "exit code 3", "no such thing", "Next: try another"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let started = Instant::now();
        let result = Run::new("sleep")
            .arg("60")
            .limit(Duration::from_millis(300))
            .quietly();
        assert!(matches!(result, Err(Error::TimedOut { .. })));
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let error = Run::new("no-such-program-at-all")
            .next("install it")
            .quietly()
            .unwrap_err();
        assert!(error.to_string().contains("Next: install it"));
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert!(tail(&text).starts_with("75\n") && tail(&text).ends_with("99"));
    }
}
