//! Server-sent events, as far as a chat completion needs them.

use serde_json::Value;

/// The events of one streamed chat completion.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChatStream {
    /// The pieces of text, joined.
    pub text: String,
    /// How many events carried a piece of text.
    pub pieces: usize,
    /// Whether an event named a reason why the text ended.
    pub finished: bool,
    /// Whether the last event was `[DONE]`.
    pub done: bool,
}

impl ChatStream {
    /// Takes the next line of the body. An error names what was not understood.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || line.starts_with(':') {
            return Ok(());
        }
        let Some(data) = line.strip_prefix("data:") else {
            return Err(format!("a line without data: {line}"));
        };
        if self.done {
            return Err(format!("an event after [DONE]: {line}"));
        }
        let data = data.trim_start();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event: Value =
            serde_json::from_str(data).map_err(|error| format!("{error} in {data}"))?;
        if let Some(error) = event.get("error") {
            return Err(format!("the server reports {error}"));
        }
        let choice = &event["choices"][0];
        if let Some(piece) = choice["delta"]["content"]
            .as_str()
            .filter(|piece| !piece.is_empty())
        {
            self.text.push_str(piece);
            self.pieces += 1;
        }
        self.finished |= choice["finish_reason"].is_string();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_until_done() {
        let mut stream = ChatStream::default();
        for line in [
            r#"data: {"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
            "",
            r#"data: {"choices":[{"delta":{"content":"Pa"},"finish_reason":null}]}"#,
            ": keep alive",
            "data: {\"choices\":[{\"delta\":{\"content\":\"ris\"}}]}\r",
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"completion_tokens":2}}"#,
            "data: [DONE]",
            "",
        ] {
            stream.line(line).unwrap();
        }
        assert_eq!(
            stream,
            ChatStream {
                text: "Paris".into(),
                pieces: 2,
                finished: true,
                done: true
            }
        );
    }

    #[test]
    fn a_cut_stream_is_not_done() {
        let mut stream = ChatStream::default();
        stream
            .line(r#"data: {"choices":[{"delta":{"content":"Pa"}}]}"#)
            .unwrap();
        assert!(!stream.done && !stream.finished);
    }

    #[test]
    fn errors_and_broken_events_are_reported() {
        let mut stream = ChatStream::default();
        assert!(
            stream
                .line(r#"data: {"error":{"message":"busy"}}"#)
                .unwrap_err()
                .contains("busy")
        );
        assert!(stream.line("data: {").is_err());
        assert!(stream.line("<html>").is_err());
        stream.line("data: [DONE]").unwrap();
        assert!(stream.line("data: {}").is_err());
    }
}
