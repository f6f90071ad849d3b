//! Editing sequences: what a context keeps between batches.

use std::ops::{Bound, RangeBounds, RangeInclusive};

use crate::context::Context;
use crate::error::{Failure, FailureKind, SequenceError};
use crate::ffi;
use crate::status::check;

/// The sequences of a context, to be edited. Ranges are of positions: `..` is the whole sequence, `4..260` a part.
///
/// Sequences of a context with [`kv_unified`](crate::ContextParams::kv_unified) can share tokens: a batch can put one
/// token into several, and [`copy`](Self::copy) copies nothing there. Moving a shared token moves it for all of them.
#[derive(Debug)]
pub struct Memory<'context, 'model> {
    context: &'context mut Context<'model>,
}

/// First position, and the one after the last; `None` when it is open.
#[derive(Clone, Copy)]
struct Span {
    start: i32,
    end: Option<i32>,
}

impl Span {
    fn new(range: impl RangeBounds<i32>) -> Result<Self, SequenceError> {
        let start = match range.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(start) => i64::from(*start),
            Bound::Excluded(start) => i64::from(*start) + 1,
        };
        let end = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Excluded(end) => Some(i64::from(*end)),
            Bound::Included(end) => Some(i64::from(*end) + 1),
        };
        let shown_end = end.unwrap_or(i64::from(i32::MAX));
        if start < 0 || shown_end < start {
            return Err(SequenceError::BadRange {
                start,
                end: shown_end,
            });
        }
        // No position is as high as i32::MAX, so both bounds may be cut there.
        let cut = |bound: i64| i32::try_from(bound).unwrap_or(i32::MAX);
        Ok(Self {
            start: cut(start),
            end: end.map(cut),
        })
    }

    fn is_empty(self) -> bool {
        self.end == Some(self.start)
    }

    fn shown_end(self) -> i32 {
        self.end.unwrap_or(i32::MAX)
    }

    /// llama.cpp's mark for an open end.
    fn raw_end(self) -> i32 {
        self.end.unwrap_or(-1)
    }

    /// Whether nothing of a sequence lies outside. `first` is where the sequence begins at the earliest.
    fn covers(self, first: i32, held: &RangeInclusive<i32>) -> bool {
        self.start <= first && self.end.is_none_or(|end| end > *held.end())
    }

    /// The part of `held` that lies in the range, first and last.
    fn within(self, held: &RangeInclusive<i32>) -> Option<(i32, i32)> {
        let first = self.start.max(*held.start());
        let last = self
            .end
            .map_or(*held.end(), |end| (end - 1).min(*held.end()));
        (first <= last).then_some((first, last))
    }
}

impl<'context, 'model> Memory<'context, 'model> {
    pub(crate) fn new(context: &'context mut Context<'model>) -> Self {
        Self { context }
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// When the model keeps nothing between calls.
    pub fn clear(&mut self) -> Result<(), SequenceError> {
        self.needs_memory()?;
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone.
        self.done(unsafe { ffi::rkv_memory_clear(context) })
    }

    /// Removes a part of a sequence, or all of it.
    ///
    /// # Errors
    /// When this kind of memory cannot forget a part. Removing a whole sequence always works.
    pub fn remove(&mut self, seq: i32, range: impl RangeBounds<i32>) -> Result<(), SequenceError> {
        self.needs_memory()?;
        self.context.needs_sequence(seq)?;
        let span = Span::new(range)?;
        let Some(held) = self.context.positions_of(seq).filter(|_| !span.is_empty()) else {
            return Ok(());
        };
        if self.covers(span, &held) {
            return self.remove_all(seq);
        }
        if self.remove_raw(seq, span.start, span.raw_end())? {
            return Ok(());
        }
        Err(SequenceError::PartialRemoval {
            seq,
            start: span.start,
            end: span.shown_end(),
        })
    }

    /// Copies a part of sequence `src` into sequence `dst`, in place of what `dst` held there. Copying all of `src`
    /// replaces all of `dst`.
    ///
    /// # Errors
    /// When only whole sequences can be copied: without [`kv_unified`](crate::ContextParams::kv_unified), and for models
    /// that keep a state per sequence.
    pub fn copy(
        &mut self,
        src: i32,
        dst: i32,
        range: impl RangeBounds<i32>,
    ) -> Result<(), SequenceError> {
        self.needs_memory()?;
        self.context.needs_sequence(src)?;
        self.context.needs_sequence(dst)?;
        let span = Span::new(range)?;
        if src == dst || span.is_empty() {
            return Ok(());
        }
        let held = self.context.positions_of(src);
        if held.as_ref().is_none_or(|held| self.covers(span, held)) {
            self.remove_all(dst)?;
            return if held.is_some() {
                self.copy_raw(src, dst, -1, -1)
            } else {
                Ok(())
            };
        }
        let reason = if self.context.memory.n_stream > 1 {
            "each sequence has a buffer of its own; make the context with kv_unified"
        } else if !self.context.memory.partial_copy {
            "this model keeps a state per sequence that has no parts"
        } else {
            ""
        };
        if !reason.is_empty() {
            let (start, end) = (span.start, span.shown_end());
            return Err(SequenceError::PartialCopy {
                src,
                dst,
                start,
                end,
                reason,
            });
        }
        self.remove(dst, span.start..span.shown_end())?;
        self.copy_raw(src, dst, span.start, span.raw_end())
    }

    /// Removes every sequence but this one.
    ///
    /// # Errors
    /// When there is no such sequence.
    pub fn keep(&mut self, seq: i32) -> Result<(), SequenceError> {
        self.needs_memory()?;
        self.context.needs_sequence(seq)?;
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone, and the sequence is one of its own.
        let kept = unsafe { ffi::rkv_memory_seq_keep(context, seq) };
        self.done(kept)?;
        // llama.cpp looks only into the buffer of the sequence that stays.
        for other in (0..self.context.limits.n_seq_max as i32).filter(|other| *other != seq) {
            if self.context.positions_of(other).is_some() {
                self.remove_all(other)?;
            }
        }
        Ok(())
    }

    /// Moves the tokens of a part of a sequence by `delta` positions. Several moves before the next batch add up.
    ///
    /// # Errors
    /// When [`can_shift`](Self::can_shift) is false, or a token would leave the range of positions.
    pub fn shift(
        &mut self,
        seq: i32,
        range: impl RangeBounds<i32>,
        delta: i32,
    ) -> Result<(), SequenceError> {
        let Some((span, first, last)) = self.movable(seq, range, delta == 0)? else {
            return Ok(());
        };
        for pos in [first, last] {
            let moved = i64::from(pos) + i64::from(delta);
            if !(0..i64::from(i32::MAX)).contains(&moved) {
                return Err(SequenceError::MovedOut { seq, pos, delta });
            }
        }
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone; the sequence is one of its own, its positions can be moved, and
        // none leaves the range.
        self.done(unsafe {
            ffi::rkv_memory_seq_add(context, seq, span.start, span.raw_end(), delta)
        })
    }

    /// Divides the positions of a part of a sequence by `divisor`, rounding down.
    ///
    /// # Errors
    /// When [`can_shift`](Self::can_shift) is false, or the divisor is below 1.
    pub fn divide(
        &mut self,
        seq: i32,
        range: impl RangeBounds<i32>,
        divisor: i32,
    ) -> Result<(), SequenceError> {
        if divisor < 1 {
            return Err(SequenceError::BadDivisor { divisor });
        }
        let Some((span, ..)) = self.movable(seq, range, divisor == 1)? else {
            return Ok(());
        };
        if !self.context.memory.can_divide {
            let reason = "llama.cpp lays this model's memory out in a way of its own".into();
            return Err(SequenceError::CannotShift { reason });
        }
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone; the sequence is one of its own, its positions can be moved, and
        // the divisor is positive.
        self.done(unsafe {
            ffi::rkv_memory_seq_div(context, seq, span.start, span.raw_end(), divisor)
        })
    }

    /// Whether [`shift`](Self::shift) works: positions must be part of K as a rotation that can be undone.
    #[must_use]
    pub fn can_shift(&self) -> bool {
        self.context.memory.can_shift
    }

    /// Does now what is queued for the next batch: moves of positions, and copies between sequences with buffers of their own. Nothing
    /// when nothing is.
    ///
    /// # Errors
    /// When a device has no memory for it; nothing was moved then.
    pub fn settle(&mut self) -> Result<(), SequenceError> {
        self.needs_memory()?;
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone.
        self.done(unsafe { ffi::rkv_memory_update(context) })
    }

    /// The positions that a sequence holds for certain, first and last; `None` when it is empty. See
    /// [`Context::positions`].
    ///
    /// # Errors
    /// When there is no such sequence.
    pub fn positions(&self, seq: i32) -> Result<Option<RangeInclusive<i32>>, SequenceError> {
        self.context.positions(seq)
    }

    fn shift_refusal(&self) -> String {
        let context = self.context.raw.as_ptr();
        // SAFETY: the context lives; no text is written.
        let length = unsafe { ffi::rkv_shift_refusal_text(context, std::ptr::null_mut(), 0) };
        let mut text = vec![0u8; length + 1];
        // SAFETY: `text` has room for the text and its closing zero.
        unsafe { ffi::rkv_shift_refusal_text(context, text.as_mut_ptr().cast(), text.len()) };
        text.pop();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The range, and the first and last position in it; `None` when there is nothing to move.
    fn movable(
        &self,
        seq: i32,
        range: impl RangeBounds<i32>,
        stays: bool,
    ) -> Result<Option<(Span, i32, i32)>, SequenceError> {
        self.needs_memory()?;
        self.context.needs_sequence(seq)?;
        let span = Span::new(range)?;
        if !self.context.memory.can_shift {
            return Err(SequenceError::CannotShift {
                reason: self.shift_refusal(),
            });
        }
        if stays || span.is_empty() {
            return Ok(None);
        }
        let held = self.context.positions_of(seq);
        let held = held.map(|held| self.first_held(&held)..=*held.end());
        Ok(held
            .and_then(|held| span.within(&held))
            .map(|(first, last)| (span, first, last)))
    }

    /// Whether the range is all of a sequence.
    fn covers(&self, span: Span, held: &RangeInclusive<i32>) -> bool {
        span.covers(self.first_held(held), held)
    }

    /// Where a sequence begins at the earliest. Only one plain cache tells exactly: a sliding window, and a state, tell
    /// from where on everything is there, and hold older things too.
    fn first_held(&self, held: &RangeInclusive<i32>) -> i32 {
        if self.context.memory.kind == ffi::RKV_MEMORY_KV {
            *held.start()
        } else {
            0
        }
    }

    fn needs_memory(&self) -> Result<(), SequenceError> {
        if self.context.poisoned {
            Err(SequenceError::Poisoned)
        } else if self.context.memory.kind == ffi::RKV_MEMORY_NONE {
            Err(SequenceError::NoMemory)
        } else {
            Ok(())
        }
    }

    /// Removes a whole sequence, which llama.cpp promises to do.
    pub(crate) fn remove_all(&mut self, seq: i32) -> Result<(), SequenceError> {
        if self.remove_raw(seq, -1, -1)? {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::Refused,
            format!("sequence {seq} could not be removed"),
        )
        .into())
    }

    fn remove_raw(&mut self, seq: i32, start: i32, end: i32) -> Result<bool, SequenceError> {
        let mut removed = false;
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone, the sequence is one of its own and `removed` is valid.
        let status = unsafe { ffi::rkv_memory_seq_rm(context, seq, start, end, &raw mut removed) };
        self.done(status)?;
        Ok(removed)
    }

    fn copy_raw(&mut self, src: i32, dst: i32, start: i32, end: i32) -> Result<(), SequenceError> {
        let context = self.context.raw.as_mut_ptr();
        // SAFETY: the context lives and is ours alone, both sequences are its own, and the range is all of `src` or
        // they lie in one buffer.
        self.done(unsafe { ffi::rkv_memory_seq_cp(context, src, dst, start, end) })
    }

    fn done(&mut self, status: ffi::rkv_status) -> Result<(), SequenceError> {
        check(status).map_err(|failure| {
            self.context.poisoned |= failure.kind() == FailureKind::Assertion;
            failure.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_range_means_the_same() {
        for span in [
            Span::new(2..5),
            Span::new(2..=4),
            Span::new((Bound::Excluded(1), Bound::Excluded(5))),
        ] {
            let span = span.unwrap();
            assert_eq!((span.start, span.end), (2, Some(5)));
        }
        assert_eq!(Span::new(..).unwrap().raw_end(), -1);
        assert_eq!(Span::new(0..=i32::MAX).unwrap().end, Some(i32::MAX));
    }

    #[test]
    fn a_range_below_zero_or_backwards_is_refused() {
        let backwards = std::ops::Range { start: 5, end: 3 };
        assert!(Span::new(-1..3).is_err());
        assert!(Span::new(backwards).is_err());
        assert!(Span::new(3..3).unwrap().is_empty());
    }

    #[test]
    fn a_range_is_cut_to_what_is_held() {
        let held = 10..=20;
        assert_eq!(Span::new(..).unwrap().within(&held), Some((10, 20)));
        assert_eq!(Span::new(15..).unwrap().within(&held), Some((15, 20)));
        assert_eq!(Span::new(..11).unwrap().within(&held), Some((10, 10)));
        assert_eq!(Span::new(..10).unwrap().within(&held), None);
        assert!(Span::new(10..21).unwrap().covers(10, &held));
        assert!(!Span::new(10..21).unwrap().covers(0, &held));
        assert!(!Span::new(10..20).unwrap().covers(10, &held));
    }
}
