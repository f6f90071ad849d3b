//! The work itself: the prompt, then one token after the other.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use rolling_kv::{Batch, Context, DecodeError, Output, RenderSpecial, Sampler, Token, Utf8Stream};

use super::RunError;
use super::report::{Outcome, StopReason, Timings};
use crate::{interrupt, ui};

/// How soon Ctrl-C reaches a computation that is running.
const LOOK: Duration = Duration::from_millis(10);

/// Everything that a generation works with.
pub struct Generation<'a, 'model> {
    pub context: &'a mut Context<'model>,
    pub sampler: &'a mut Sampler<'model>,
    /// Where the text goes as it is made.
    pub out: &'a mut dyn Write,
    pub tokens_max: u32,
}

impl Generation<'_, '_> {
    /// Reads the prompt and writes the answer. `load` is only passed on into the outcome.
    pub fn run(mut self, prompt: &[Token], load: Duration) -> Result<Outcome, RunError> {
        stop_when_asked(self.context);
        let mut timings = Timings {
            load,
            ..Timings::default()
        };
        let start = Instant::now();
        timings.prompt_tokens = self.read(prompt)?;
        timings.prompt = start.elapsed();
        let mut answer = AnswerSoFar::default();
        let start = Instant::now();
        let stop = if timings.prompt_tokens < prompt.len() {
            StopReason::Interrupted
        } else {
            self.write(prompt.len(), &mut answer)?
        };
        timings.generate = start.elapsed();
        timings.generated_tokens = answer.tokens.len();
        Ok(Outcome {
            text: answer.text,
            tokens: answer.tokens,
            stop,
            timings,
        })
    }

    /// Computes the prompt, a ubatch at a time: llama.cpp would cut a larger batch in the same places, and so there is
    /// progress to show. Answers how many tokens were done before an interruption, or all of them.
    fn read(&mut self, prompt: &[Token]) -> Result<usize, RunError> {
        let (n_batch, n_ubatch) = (
            self.context.n_batch() as usize,
            self.context.n_ubatch() as usize,
        );
        let bar = ui::token_bar("prompt", prompt.len() as u64);
        let mut batch = Batch::with_capacity(n_ubatch);
        let mut done = 0;
        for piece in prompt
            .chunks(n_batch)
            .flat_map(|piece| piece.chunks(n_ubatch))
        {
            batch.clear();
            for &token in piece {
                let output = if done + batch.len() + 1 == prompt.len() {
                    Output::Yes
                } else {
                    Output::No
                };
                batch.push(token, position(done + batch.len()), &[0], output);
            }
            if interrupt::requested() || !finished(self.context.decode(&batch))? {
                break;
            }
            done += piece.len();
            bar.set_position(done as u64);
        }
        bar.finish_and_clear();
        // A penalty on repetitions counts the prompt too.
        for &token in &prompt[..done] {
            self.sampler.accept(token)?;
        }
        Ok(done)
    }

    /// Chooses tokens and writes their text until there is a reason to stop. `held` tokens are in the context already.
    fn write(&mut self, held: usize, answer: &mut AnswerSoFar) -> Result<StopReason, RunError> {
        let vocab = self.context.model().vocab();
        let mut pieces = Utf8Stream::new();
        let mut batch = Batch::with_capacity(1);
        let stop = loop {
            if answer.tokens.len() >= self.tokens_max as usize {
                break StopReason::Length;
            }
            if interrupt::requested() {
                break StopReason::Interrupted;
            }
            let token = self.sampler.sample(&self.context.last_logits()?)?;
            answer.tokens.push(token.0);
            if vocab.is_end(token) {
                break StopReason::EndOfText;
            }
            let text = pieces.push(&vocab.piece(token, RenderSpecial::No)?);
            if !self.emit(&text, answer)? {
                break StopReason::OutputClosed;
            }
            if answer.tokens.len() >= self.tokens_max as usize {
                break StopReason::Length;
            }
            let place = held + answer.tokens.len() - 1;
            if place + 1 >= self.context.n_ctx() as usize {
                break StopReason::ContextFull;
            }
            batch.clear();
            batch.push(token, position(place), &[0], Output::Yes);
            if !finished(self.context.decode(&batch))? {
                break StopReason::Interrupted;
            }
        };
        let rest = pieces.finish();
        let open = self.emit(&rest, answer)?;
        Ok(if open { stop } else { StopReason::OutputClosed })
    }

    /// Writes text at once. False: nobody reads any more.
    fn emit(&mut self, text: &str, answer: &mut AnswerSoFar) -> Result<bool, RunError> {
        if text.is_empty() {
            return Ok(true);
        }
        answer.text.push_str(text);
        match self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
        {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(RunError::Write(error)),
        }
    }
}

/// What was generated so far.
#[derive(Default)]
struct AnswerSoFar {
    text: String,
    tokens: Vec<i32>,
}

/// Positions are 32-bit in llama.cpp; a context is never larger.
fn position(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// False: the computation was stopped by Ctrl-C.
fn finished(decoded: Result<(), DecodeError>) -> Result<bool, DecodeError> {
    match decoded {
        Ok(()) => Ok(true),
        Err(DecodeError::Aborted) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Passes Ctrl-C on to the computation that is running. The thread ends with the process.
fn stop_when_asked(context: &Context<'_>) {
    let handle = context.abort_handle();
    thread::spawn(move || {
        while !interrupt::requested() {
            thread::sleep(LOOK);
        }
        handle.abort();
    });
}
