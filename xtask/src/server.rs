//! A patched llama-server that a check starts, asks and stops.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use ureq::Agent;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::{Run, in_words};
use crate::upstream::free_port;

/// The longest that a server may take to load the model, to answer, and to stop.
const START_LIMIT: Duration = Duration::from_secs(180);
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A server that is killed if a check fails before it was stopped.
pub struct Server {
    child: Child,
    agent: Agent,
    url: String,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only where the server has ended already, which is what is wanted.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

impl Server {
    /// Starts `program` with `args` and `env`; what it says goes to the log called `name`.
    pub fn start(
        place: &Place,
        name: &str,
        program: &Path,
        args: impl FnOnce(Run) -> Run,
    ) -> Result<Self> {
        let port = free_port()?.to_string();
        fs::create_dir_all(place.logs()).map_err(Error::file("make", &place.logs()))?;
        let log = place.logs().join(format!("{name}.log"));
        let file = File::create(&log).map_err(Error::file("write", &log))?;
        let run = Run::new(program).args(["--host", "127.0.0.1", "--port", &port]);
        let child = args(run).env_remove("LD_LIBRARY_PATH").spawned(file)?;
        Ok(Self::of(child, format!("http://127.0.0.1:{port}"), log))
    }

    fn of(child: Child, url: String, log: PathBuf) -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(ANSWER_LIMIT))
            .http_status_as_error(false)
            .build()
            .into();
        Self {
            child,
            agent,
            url,
            log,
        }
    }

    /// An error of this server.
    pub fn wrong(&self, what: impl Into<String>) -> Error {
        Error::wrong(
            what.into(),
            format!("read the server's log, {}", self.log.display()),
        )
    }

    /// What it has said so far.
    pub fn said(&self) -> Result<String> {
        let bytes = fs::read(&self.log).map_err(Error::file("read", &self.log))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An error if the server has ended.
    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(self.wrong(format!("the server ended with {}", in_words(status))))
            }
            Err(error) => Err(self.wrong(format!("the server cannot be watched: {error}"))),
        }
    }

    /// Waits until it has loaded its model.
    pub fn wait_until_healthy(&mut self) -> Result<Duration> {
        let started = Instant::now();
        loop {
            self.check_alive()?;
            let answer = self.agent.get(format!("{}/health", self.url)).call();
            if answer.is_ok_and(|answer| answer.status() == 200) {
                return Ok(started.elapsed());
            }
            if started.elapsed() > START_LIMIT {
                return Err(self.wrong(format!(
                    "the server is not healthy after {} s",
                    START_LIMIT.as_secs()
                )));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Posts a JSON object; any answer but 200 is an error.
    pub fn post(&self, path: &str, object: &str) -> Result<ureq::http::Response<ureq::Body>> {
        let request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json");
        let mut answer = request
            .send(object)
            .map_err(|error| self.wrong(format!("the request failed: {error}")))?;
        if answer.status() == 200 {
            return Ok(answer);
        }
        let body = answer.body_mut().read_to_string().unwrap_or_default();
        Err(self.wrong(format!("the server answered {}: {body}", answer.status())))
    }

    /// The same; the body of the answer.
    pub fn body(&self, path: &str, object: &str) -> Result<String> {
        self.post(path, object)?
            .body_mut()
            .read_to_string()
            .map_err(|error| self.wrong(format!("the answer broke off: {error}")))
    }

    /// Sends SIGTERM and waits for exit code 0.
    pub fn stop(&mut self) -> Result<Duration> {
        let started = Instant::now();
        Run::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()])
            .quietly()?
            .success()?;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(started.elapsed()),
                Ok(Some(status)) => {
                    return Err(self.wrong(format!(
                        "SIGTERM ended the server with {}",
                        in_words(status)
                    )));
                }
                Ok(None) if started.elapsed() > STOP_LIMIT => {
                    return Err(self.wrong(format!(
                        "the server still runs {} s after SIGTERM",
                        STOP_LIMIT.as_secs()
                    )));
                }
                Ok(None) => thread::sleep(Duration::from_millis(50)),
                Err(error) => {
                    return Err(self.wrong(format!("the server cannot be watched: {error}")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_an_error_that_names_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let child = Run::new("sh")
            .args(["-c", "exit 3"])
            .spawned(File::create(dir.path().join("log")).unwrap())
            .unwrap();
        let mut server = Server::of(child, "http://127.0.0.1:9".into(), "the.log".into());
        let error = server.wait_until_healthy().unwrap_err().to_string();
        assert!(
            error.contains("exit code 3") && error.contains("the.log"),
            "{error}"
        );
    }
}
