//! What must hold before a batch is run. Most of it would otherwise end the process, and the rest only be logged.

use crate::batch::Batch;
use crate::context::Context;
use crate::context_params::Pooling;
use crate::error::DecodeError;
use crate::{ffi, host};

/// Output rows of more than this are weighed against the free memory before they are allocated.
const UNCHECKED_OUTPUT_BYTES: u64 = 64 << 20;

/// Memory that is reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    n_seq_id: Vec<i32>,
    seq_id: Vec<*mut i32>,
    pub(crate) spans: Vec<Span>,
    /// Index into `spans`, plus one, by sequence.
    span_of: Vec<u16>,
    /// Output rows that llama.cpp has memory for.
    output_rows: usize,
}

/// The part of a sequence that a batch adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) seq: i32,
    pub(crate) first: i32,
    last: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    Decode,
    Encode,
}

impl Context<'_> {
    /// Everything that llama.cpp would assert, and what it would only log.
    pub(crate) fn check(&mut self, batch: &Batch, pass: Pass) -> Result<(), DecodeError> {
        let limits = self.limits;
        let tokens = batch.len();
        if batch.is_empty() {
            return Err(DecodeError::EmptyBatch);
        }
        if tokens > limits.n_batch as usize {
            return Err(DecodeError::BatchTooLarge {
                tokens,
                n_batch: limits.n_batch,
            });
        }
        let whole = tokens > limits.n_ubatch as usize;
        if whole && (!limits.causal || pass == Pass::Encode || !self.keeps_memory()) {
            return Err(DecodeError::NonCausalTooLarge {
                tokens,
                n_ubatch: limits.n_ubatch,
            });
        }
        if whole && limits.embeddings && limits.pooling != Pooling::None {
            return Err(DecodeError::PooledTooLarge {
                tokens,
                n_ubatch: limits.n_ubatch,
            });
        }
        self.scratch.begin(limits.n_seq_max as usize);
        let n_vocab = self.model.facts().n_vocab;
        let n_positions = self.model.facts().info.n_positions;
        for (index, token) in batch.tokens().iter().enumerate() {
            if !u32::try_from(token.0).is_ok_and(|token| token < n_vocab) {
                return Err(DecodeError::TokenOutOfRange {
                    index,
                    token: token.0,
                    n_vocab,
                });
            }
            let pos = batch.positions()[index];
            if !(0..i32::MAX).contains(&pos) {
                return Err(DecodeError::PositionOutOfRange { index, pos });
            }
            if n_positions > 0 && pos.unsigned_abs() >= n_positions {
                return Err(DecodeError::PositionNotLearned {
                    index,
                    pos,
                    n_positions,
                });
            }
            self.check_sequences(index, pos, batch.seqs(index).unwrap_or_default(), pass)?;
        }
        Ok(())
    }

    fn check_sequences(
        &mut self,
        index: usize,
        pos: i32,
        seqs: &[i32],
        pass: Pass,
    ) -> Result<(), DecodeError> {
        let n_seq_max = self.limits.n_seq_max;
        if seqs.is_empty() {
            return Err(DecodeError::NoSequence { index });
        }
        // Separate buffers cannot hold one token twice, and a recurrent state belongs to one sequence while it grows.
        let apart = self.memory.n_stream > 1 || self.memory.kind == ffi::RKV_MEMORY_RECURRENT;
        for (nth, &seq) in seqs.iter().enumerate() {
            if !u32::try_from(seq).is_ok_and(|seq| seq < n_seq_max) {
                return Err(DecodeError::SequenceOutOfRange {
                    index,
                    seq,
                    n_seq_max,
                });
            }
            if seqs[..nth].contains(&seq) {
                return Err(DecodeError::SequenceTwice { index, seq });
            }
        }
        if seqs.len() > 1 && apart && self.keeps_memory() {
            return Err(DecodeError::SharedTokenNeedsUnified {
                index,
                n_seqs: seqs.len(),
            });
        }
        for &seq in seqs {
            self.check_position(index, pos, seq, pass)?;
        }
        Ok(())
    }

    fn check_position(
        &mut self,
        index: usize,
        pos: i32,
        seq: i32,
        pass: Pass,
    ) -> Result<(), DecodeError> {
        let several = self.model.facts().info.n_pos_per_embd > 1;
        if let Some(span) = self.scratch.span_mut(seq) {
            let follows = if several {
                pos >= span.last
            } else {
                pos == span.last + 1
            };
            if !follows {
                let expected = span.last + 1;
                return Err(DecodeError::PositionGap {
                    index,
                    seq,
                    expected,
                    found: pos,
                });
            }
            span.last = pos;
            return Ok(());
        }
        let held = if pass == Pass::Decode {
            self.positions_of(seq)
        } else {
            None
        };
        if let Some(held) = held {
            let expected = held.end().saturating_add(1);
            let follows = if several {
                pos >= expected
            } else {
                pos == expected
            };
            if !follows {
                return Err(DecodeError::PositionGap {
                    index,
                    seq,
                    expected,
                    found: pos,
                });
            }
        }
        self.scratch.add_span(Span {
            seq,
            first: pos,
            last: pos,
        });
        Ok(())
    }

    /// Output rows are cleared when they are allocated, so too many of them would be found out by the kernel only.
    pub(crate) fn check_outputs(&mut self, batch: &Batch, pass: Pass) -> Result<(), DecodeError> {
        let all = self.limits.embeddings || pass == Pass::Encode || !self.keeps_memory();
        let outputs = if all {
            batch.len()
        } else {
            batch.outputs().iter().filter(|mark| **mark != 0).count()
        };
        if outputs <= self.scratch.output_rows {
            return Ok(());
        }
        let facts = self.model.facts();
        let row = u64::from(facts.n_vocab)
            + if self.limits.embeddings {
                u64::from(facts.n_embd_out)
            } else {
                0
            };
        let needs_bytes = row * size_of::<f32>() as u64 * outputs as u64;
        if needs_bytes > UNCHECKED_OUTPUT_BYTES
            && let Some(available_bytes) =
                host::available_bytes().filter(|available| needs_bytes > *available)
        {
            return Err(DecodeError::OutputsTooLarge {
                outputs,
                needs_bytes,
                available_bytes,
            });
        }
        self.scratch.output_rows = outputs;
        Ok(())
    }
}

impl Scratch {
    fn begin(&mut self, n_seq_max: usize) {
        for span in self.spans.drain(..) {
            self.span_of[span.seq as usize] = 0;
        }
        self.span_of.resize(n_seq_max, 0);
    }

    fn span_mut(&mut self, seq: i32) -> Option<&mut Span> {
        let index = usize::from(self.span_of[seq as usize]).checked_sub(1)?;
        self.spans.get_mut(index)
    }

    fn add_span(&mut self, span: Span) {
        self.spans.push(span);
        self.span_of[span.seq as usize] = self.spans.len() as u16;
    }

    /// The C struct over the batch's own memory. llama.cpp only reads it, though its pointers are not const.
    pub(crate) fn raw(&mut self, batch: &Batch) -> ffi::llama_batch {
        self.n_seq_id.clear();
        self.seq_id.clear();
        for index in 0..batch.len() {
            let seqs = batch.seqs(index).unwrap_or_default();
            self.n_seq_id.push(seqs.len() as i32);
            self.seq_id.push(seqs.as_ptr().cast_mut());
        }
        ffi::llama_batch {
            n_tokens: batch.len() as i32,
            token: batch.tokens().as_ptr().cast_mut().cast(),
            embd: std::ptr::null_mut(),
            pos: batch.positions().as_ptr().cast_mut(),
            n_seq_id: self.n_seq_id.as_mut_ptr(),
            seq_id: self.seq_id.as_mut_ptr(),
            logits: batch.outputs().as_ptr().cast_mut(),
        }
    }
}
