//! Running batches.

use std::sync::atomic::Ordering;

use crate::batch::{Batch, Output};
use crate::context::Context;
use crate::decode_checks::Pass;
use crate::error::{DecodeError, Failure, FailureKind};
use crate::model::with_log;
use crate::status::check;
use crate::vocab::Token;
use crate::{ffi, logging};

impl Context<'_> {
    /// Runs a batch: each token attends to what its sequences hold, and is added to them.
    ///
    /// # Errors
    /// When the batch does not suit the context; then nothing was run. When the run itself fails, its tokens are taken
    /// out of the sequences again.
    pub fn decode(&mut self, batch: &Batch) -> Result<(), DecodeError> {
        if self.model.has_encoder() && !self.model.has_decoder() {
            return self.encode(batch);
        }
        if self.model.has_encoder() && !self.encoded {
            return Err(DecodeError::NotEncoded);
        }
        self.run(batch, Pass::Decode)
    }

    /// Runs a batch through the encoder of an encoder-decoder model, or through an encoder-only one. The decoder then
    /// attends to it until the next call. Every token is an output.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), and when the model has no encoder.
    pub fn encode(&mut self, batch: &Batch) -> Result<(), DecodeError> {
        if !self.model.has_encoder() && self.keeps_memory() {
            return Err(DecodeError::NoEncoder);
        }
        self.run(batch, Pass::Encode)?;
        self.encoded = true;
        Ok(())
    }

    /// Runs tokens at the end of a sequence, in as many batches as it takes. The last one is an output:
    /// [`last_logits`](Self::last_logits) tells what comes next.
    ///
    /// # Errors
    /// As [`decode`](Self::decode). After an error the sequence holds what it held before.
    pub fn append(&mut self, seq: i32, tokens: &[Token]) -> Result<(), DecodeError> {
        if tokens.is_empty() {
            return Err(DecodeError::EmptyBatch);
        }
        let in_range = u32::try_from(seq).is_ok_and(|seq| seq < self.limits.n_seq_max);
        if !in_range {
            return Err(DecodeError::SequenceOutOfRange {
                index: 0,
                seq,
                n_seq_max: self.limits.n_seq_max,
            });
        }
        let start = self.positions_of(seq).map_or(0, |held| held.end() + 1);
        let mut batch = std::mem::take(&mut self.spare);
        let done = self.append_at(seq, tokens, start, &mut batch);
        self.spare = batch;
        done.map_err(|cause| {
            if self.poisoned {
                cause
            } else {
                self.take_back(seq, start, cause)
            }
        })
    }

    fn append_at(
        &mut self,
        seq: i32,
        tokens: &[Token],
        start: i32,
        batch: &mut Batch,
    ) -> Result<(), DecodeError> {
        let chunk_len = self.limits.n_batch as usize;
        let last_chunk = (tokens.len() - 1) / chunk_len;
        let mut position = start;
        for (index, chunk) in tokens.chunks(chunk_len).enumerate() {
            batch.clear();
            for (offset, token) in chunk.iter().enumerate() {
                let last = index == last_chunk && offset + 1 == chunk.len();
                batch.push(
                    *token,
                    position,
                    &[seq],
                    if last { Output::Yes } else { Output::No },
                );
                position = position.saturating_add(1);
            }
            self.decode(batch)?;
        }
        Ok(())
    }

    pub(crate) fn keeps_memory(&self) -> bool {
        self.memory.kind != ffi::RKV_MEMORY_NONE
    }

    fn run(&mut self, batch: &Batch, pass: Pass) -> Result<(), DecodeError> {
        if self.poisoned {
            return Err(DecodeError::Poisoned);
        }
        self.check(batch, pass)?;
        self.check_outputs(batch, pass)?;
        if self.abort.swap(false, Ordering::Relaxed) {
            return Err(DecodeError::Aborted);
        }
        self.outputs.invalidate();

        let raw = self.scratch.raw(batch);
        let context = self.raw.as_mut_ptr();
        let mut answer = 0;
        let (status, log) = logging::capture(|| {
            // SAFETY: the context lives and is ours alone; `raw` points into `batch` and `scratch`, which outlive the
            // call, and every token, position and sequence in it was checked. llama.cpp only reads a batch.
            check(unsafe {
                match pass {
                    Pass::Decode => {
                        ffi::rkv_context_decode(context, &raw const raw, &raw mut answer)
                    }
                    Pass::Encode => {
                        ffi::rkv_context_encode(context, &raw const raw, &raw mut answer)
                    }
                }
            })
        });
        match self.verdict(batch, status, answer, log) {
            Ok(()) => {
                let all = self.limits.embeddings || pass == Pass::Encode || !self.keeps_memory();
                self.outputs.set(batch.outputs(), all);
                Ok(())
            }
            // llama.cpp itself restores the sequences after these.
            Err(
                cause @ (DecodeError::NoSlot { .. }
                | DecodeError::Refused(_)
                | DecodeError::Poisoned),
            ) => Err(cause),
            Err(cause) => Err(self.roll_back(cause, pass)),
        }
    }

    fn verdict(
        &mut self,
        batch: &Batch,
        status: Result<(), Failure>,
        answer: i32,
        log: String,
    ) -> Result<(), DecodeError> {
        if let Err(failure) = status {
            self.poisoned = failure.kind() == FailureKind::Assertion;
            return Err(DecodeError::Failed(with_log(failure, log)));
        }
        match answer {
            0 => Ok(()),
            1 => Err(DecodeError::NoSlot {
                tokens: batch.len(),
            }),
            2 => {
                self.abort.store(false, Ordering::Relaxed);
                Err(DecodeError::Aborted)
            }
            -1 => Err(DecodeError::Refused(with_log(
                Failure::new(FailureKind::Refused, "inconsistent batch"),
                log,
            ))),
            code => {
                let failure = Failure::new(
                    FailureKind::Refused,
                    format!("llama_decode answered {code}"),
                );
                Err(DecodeError::Failed(with_log(failure, log)))
            }
        }
    }

    /// Takes out of every sequence what the failed batch put in.
    fn roll_back(&mut self, cause: DecodeError, pass: Pass) -> DecodeError {
        if self.poisoned || pass == Pass::Encode || !self.keeps_memory() {
            return cause;
        }
        let spans = std::mem::take(&mut self.scratch.spans);
        let cause = spans.iter().fold(cause, |cause, span| {
            self.take_back(span.seq, span.first, cause)
        });
        self.scratch.spans = spans;
        cause
    }

    /// Removes what lies at `first` and after it; `cause` says in the end whether that went well.
    fn take_back(&mut self, seq: i32, first: i32, cause: DecodeError) -> DecodeError {
        if self
            .positions_of(seq)
            .is_none_or(|held| *held.end() < first)
        {
            return cause;
        }
        let mut done = false;
        // SAFETY: the context lives and is ours alone, the sequence is one of its own and `done` is valid.
        let status =
            unsafe { ffi::rkv_memory_seq_rm(self.raw.as_mut_ptr(), seq, first, -1, &raw mut done) };
        match (check(status), done) {
            (Ok(()), true) => cause,
            _ => DecodeError::NotRolledBack {
                seq,
                cause: Box::new(cause),
            },
        }
    }
}
