//! The server smoke test: the patched llama-server starts, answers a real HTTP client, and stops.

use std::io::{BufRead, BufReader};

use rolling_kv_stage::Variant;
use serde_json::{Value, json};

use crate::error::Result;
use crate::model;
use crate::native;
use crate::place::Place;
use crate::report::Counts;
use crate::server::Server;
use crate::sse::ChatStream;

const CHAT: &str = "/v1/chat/completions";

/// Starts the server, asks it twice, stops it; prints one line per check.
pub fn run(place: &Place) -> Result<Counts> {
    let built = native::build(place, Variant::Patched, &["llama-server"])?;
    let model = model::fetch(place)?;
    let program = built.bin_dir().join("llama-server");
    let mut server = Server::start(place, "server-smoke", &program, |run| {
        run.args(["-c", "1024", "--parallel", "1", "-m"])
            .arg(&model)
    })?;
    let mut passed = 0;
    let mut pass = |what: String| {
        println!("ok  {what}");
        passed += 1;
    };
    pass(format!(
        "/health answers after {:.1} s",
        server.wait_until_healthy()?.as_secs_f64()
    ));
    let whole = ask(&server)?;
    pass(format!("/v1/chat/completions: {whole:?}"));
    let stream = ask_streamed(&server)?;
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
        server.stop()?.as_secs_f64()
    ));
    Ok(Counts::new(passed, 0, 0))
}

/// A question whose answer is the same each time.
fn question(stream: bool) -> String {
    json!({
        "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
        "max_tokens": 24, "temperature": 0, "stream": stream,
    })
    .to_string()
}

fn ask(server: &Server) -> Result<String> {
    let body = server.body(CHAT, &question(false))?;
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

fn ask_streamed(server: &Server) -> Result<ChatStream> {
    let mut answer = server.post(CHAT, &question(true))?;
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
}
