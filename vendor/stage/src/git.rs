//! git, run so that neither the user's settings nor a surrounding repository matter.

use crate::error::{Error, IoContext, Result};
use crate::fsx;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The work tree of `patches open`.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    dir: PathBuf,
}

const AUTHOR: &str = "rolling-kv";
/// What does not depend on the user: a new commit here is the project's, and files are kept byte for byte.
const SETTINGS: &str = "[user]\n\tname = rolling-kv\n\temail = rolling-kv@localhost\n\
    [core]\n\tautocrlf = false\n\tfileMode = false\n\tquotePath = false\n\thooksPath = /dev/null\n\
    [commit]\n\tgpgSign = false\n[gc]\n\tauto = 0\n[advice]\n\tdetachedHead = false\n";

impl Git {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Makes `dir` a repository of its own, in which files are kept byte for byte and those that match `ignored` do not count.
    pub(crate) fn init(dir: &Path, ignored: &str) -> Result<Self> {
        let git = Self::new(dir);
        git.run(["init", "--quiet", "--template=", "--initial-branch=patches"])?;
        let mut config = std::fs::read(dir.join(".git/config")).at("read", dir)?;
        config.extend_from_slice(SETTINGS.as_bytes());
        fsx::write_atomic(&dir.join(".git/config"), &config)?;
        fsx::write_atomic(&dir.join(".git/info/attributes"), b"* -text\n")?;
        fsx::write_atomic(
            &dir.join(".git/info/exclude"),
            format!("/{ignored}\n").as_bytes(),
        )?;
        Ok(git)
    }

    /// Runs git and returns what it prints.
    ///
    /// # Errors
    /// [`Error::Git`] with what it says.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        self.feed(args, "")
    }

    /// Runs git with `input` on its stdin.
    pub(crate) fn feed<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Result<String> {
        let args: Vec<_> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        let failed = |message: String| Error::Git {
            command: args
                .iter()
                .map(|arg| arg.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
            dir: self.dir.clone(),
            message,
        };
        let output = self
            .start(&args, input)
            .map_err(|error| failed(format!("{error}; is git installed?")))?;
        if !output.status.success() {
            return Err(failed(
                String::from_utf8_lossy(&output.stderr)
                    .trim_end()
                    .to_owned(),
            ));
        }
        String::from_utf8(output.stdout)
            .map_err(|_| failed("it printed something that is not UTF-8".to_owned()))
    }

    fn start(&self, args: &[std::ffi::OsString], input: &str) -> std::io::Result<Output> {
        let mut git = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                git.env_remove(name);
            }
        }
        git.env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C");
        git.env(
            "GIT_CEILING_DIRECTORIES",
            self.dir.parent().unwrap_or(&self.dir),
        );
        git.current_dir(&self.dir)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = git.spawn()?;
        let mut stdin = child.stdin.take();
        let text = input.to_owned();
        let writer =
            std::thread::spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(text.as_bytes())));
        let output = child.wait_with_output();
        let _ = writer.join();
        output
    }

    /// Commits every change with this message, dated `date` (YYYY-MM-DD).
    pub(crate) fn commit(&self, message: &str, date: &str) -> Result<()> {
        self.run(["add", "--all", "--force"])?;
        let author = format!("--author={AUTHOR} <{AUTHOR}@localhost>");
        let date = format!("--date={date}T00:00:00Z");
        let fixed = [
            "commit",
            "--quiet",
            "--allow-empty",
            "--cleanup=verbatim",
            "--file=-",
        ];
        self.feed(
            fixed.into_iter().chain([author.as_str(), date.as_str()]),
            message,
        )
        .map(drop)
    }
}
