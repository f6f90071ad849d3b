//! The server smoke test: the patched llama-server starts, answers a real HTTP client, and stops.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rolling_kv_stage::Variant;
use serde_json::{Value, json};
use ureq::Agent;

use crate::error::{Error, Result};
use crate::model;
use crate::native;
use crate::place::Place;
use crate::process::{Run, in_words};
use crate::report::Counts;
use crate::sse::ChatStream;
use crate::upstream::free_port;

/// The longest that the server may take to load the model, and to stop.
const START_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A server that is killed if a check fails before it was stopped.
struct Server {
    child: Child,
    url: String,
    log: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only where the server has ended already, which is what is wanted.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Starts the server, asks it twice, stops it; prints one line per check.
pub fn run(place: &Place) -> Result<Counts> {
    let built = native::build(place, Variant::Patched, &["llama-server"])?;
    let model = model::fetch(place)?;
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(300)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut server = start(place, &built.bin_dir().join("llama-server"), &model)?;
    let mut passed = 0;
    let mut pass = |what: String| {
        println!("ok  {what}");
        passed += 1;
    };
    pass(format!(
        "/health answers after {:.1} s",
        wait_until_healthy(&agent, &mut server)?.as_secs_f64()
    ));
    let whole = ask(&agent, &server)?;
    pass(format!("/v1/chat/completions: {whole:?}"));
    let stream = ask_streamed(&agent, &server)?;
    pass(format!(
        "/v1/chat/completions, streamed in {} pieces up to [DONE]: {:?}",
        stream.pieces, stream.text
    ));
    if stream.text != whole {
        return Err(server.wrong(format!(
            "the streamed answer differs from the other one: {:?}, {whole:?}",
            stream.text
        )));
    }
    pass("both answers are the same text".to_owned());
    pass(format!(
        "SIGTERM ends it with exit code 0 in {:.1} s",
        stop(&mut server)?.as_secs_f64()
    ));
    Ok(Counts::new(passed, 0, 0))
}

fn start(place: &Place, program: &Path, model: &Path) -> Result<Server> {
    let port = free_port()?.to_string();
    std::fs::create_dir_all(place.logs()).map_err(Error::file("make", &place.logs()))?;
    let path = place.logs().join("server-smoke.log");
    let log = File::create(&path).map_err(Error::file("write", &path))?;
    let run = Run::new(program)
        .args([
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "-c",
            "1024",
            "--parallel",
            "1",
            "-m",
        ])
        .arg(model);
    let child = run.env_remove("LD_LIBRARY_PATH").spawned(log)?;
    Ok(Server {
        child,
        url: format!("http://127.0.0.1:{port}"),
        log: path.display().to_string(),
    })
}

impl Server {
    fn wrong(&self, what: String) -> Error {
        Error::wrong(what, format!("read the server's log, {}", self.log))
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
}

fn wait_until_healthy(agent: &Agent, server: &mut Server) -> Result<Duration> {
    let started = Instant::now();
    loop {
        server.check_alive()?;
        let answer = agent.get(format!("{}/health", server.url)).call();
        if answer.is_ok_and(|answer| answer.status() == 200) {
            return Ok(started.elapsed());
        }
        if started.elapsed() > START_LIMIT {
            return Err(server.wrong(format!(
                "the server is not healthy after {} s",
                START_LIMIT.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A question whose answer is the same each time.
fn question(stream: bool) -> String {
    json!({
        "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
        "max_tokens": 24, "temperature": 0, "stream": stream,
    })
    .to_string()
}

fn post(agent: &Agent, server: &Server, stream: bool) -> Result<ureq::http::Response<ureq::Body>> {
    let request = agent
        .post(format!("{}/v1/chat/completions", server.url))
        .header("content-type", "application/json");
    let mut answer = request
        .send(question(stream))
        .map_err(|error| server.wrong(format!("the request failed: {error}")))?;
    if answer.status() == 200 {
        return Ok(answer);
    }
    let body = answer.body_mut().read_to_string().unwrap_or_default();
    Err(server.wrong(format!("the server answered {}: {body}", answer.status())))
}

fn ask(agent: &Agent, server: &Server) -> Result<String> {
    let body = post(agent, server, false)?.body_mut().read_to_string();
    let body = body.map_err(|error| server.wrong(format!("the answer broke off: {error}")))?;
    answer_text(&body).ok_or_else(|| server.wrong(format!("the answer holds no text: {body}")))
}

/// The text of an answer that is complete: a message, a reason why it ended, and a count of its tokens.
fn answer_text(body: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let choice = answer.get("choices")?.get(0)?;
    choice.get("finish_reason")?.as_str()?;
    answer
        .get("usage")?
        .get("completion_tokens")?
        .as_u64()
        .filter(|&tokens| tokens > 0)?;
    choice
        .get("message")?
        .get("content")?
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn ask_streamed(agent: &Agent, server: &Server) -> Result<ChatStream> {
    let mut answer = post(agent, server, true)?;
    let kind = answer
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    if !kind.starts_with("text/event-stream") {
        return Err(server.wrong(format!("the streamed answer is of type {kind:?}")));
    }
    let mut stream = ChatStream::default();
    for line in BufReader::new(answer.body_mut().as_reader()).lines() {
        let line = line.map_err(|error| server.wrong(format!("the stream broke off: {error}")))?;
        stream.line(&line).map_err(|what| server.wrong(what))?;
    }
    match stream {
        ChatStream {
            done: true,
            finished: true,
            pieces: 2..,
            ..
        } => Ok(stream),
        other => Err(server.wrong(format!("the stream is not complete: {other:?}"))),
    }
}

fn stop(server: &mut Server) -> Result<Duration> {
    let started = Instant::now();
    Run::new("sh")
        .args(["-c", "kill -TERM \"$0\"", &server.child.id().to_string()])
        .quietly()?
        .success()?;
    loop {
        match server.child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(started.elapsed()),
            Ok(Some(status)) => {
                return Err(server.wrong(format!(
                    "SIGTERM ended the server with {}",
                    in_words(status)
                )));
            }
            Ok(None) if started.elapsed() > STOP_LIMIT => {
                return Err(server.wrong(format!(
                    "the server still runs {} s after SIGTERM",
                    STOP_LIMIT.as_secs()
                )));
            }
            Ok(None) => thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                return Err(server.wrong(format!("the server cannot be watched: {error}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_answer_has_a_text() {
        let whole = r#"{"choices":[{"finish_reason":"stop","message":{"content":"Paris."}}],"usage":{"completion_tokens":2}}"#;
        assert_eq!(answer_text(whole).as_deref(), Some("Paris."));
        for broken in [
            whole.replace("\"stop\"", "null"),
            whole.replace("Paris.", ""),
            whole.replace(":2}", ":0}"),
            "{}".to_owned(),
        ] {
            assert_eq!(answer_text(&broken), None, "{broken}");
        }
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_that_names_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let child = Run::new("sh")
            .args(["-c", "exit 3"])
            .spawned(File::create(dir.path().join("log")).unwrap())
            .unwrap();
        let mut server = Server {
            child,
            url: "http://127.0.0.1:9".into(),
            log: "the.log".into(),
        };
        let error = wait_until_healthy(&Agent::new_with_defaults(), &mut server)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("exit code 3") && error.contains("the.log"),
            "{error}"
        );
    }
}
