//! What a tail costs: decode time over its length, for a ring that runs ahead and for copies that wait for their layer.
//!
//! The time is the device's own where it reckons one, so that the ratios are those of the schedules and not of this machine's
//! moods; else it is the time of day.

use rolling_kv::{AddSpecial, Model, ParseSpecial, RollingKv, Schedule, Staging, Token};
use serde::Serialize;

use crate::decode_time::{Decoder, median};
use crate::error::GateError;
use crate::noise_text::noise_text;
use crate::subject;
use crate::verdict::Verdict;

/// Decode time per token over the bytes of the tail, on a device behind a link of known bandwidth.
#[derive(Debug, Clone)]
pub struct Cliff {
    /// Tokens of context; a text fills all but the decoded ones.
    pub n_ctx: u32,
    /// Windows that are tried, from every cell to none; the first ones lie closer together.
    pub points: u32,
    /// Tokens decoded at each point; the first two do not count.
    pub decoded: u32,
    /// Cells of a copy, for both schedules; a whole number of tiles.
    pub copy_cells: u32,
    /// Slots of the ring; `None`: chosen by the device.
    pub ring_depth: Option<u32>,
    /// Bandwidth of the device's link, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Seed of the built-in text.
    pub seed: u64,
}

/// One length of the tail.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CliffPoint {
    /// Cells of each layer in the window.
    pub window_cells: u32,
    /// Bytes of the tail that a step brings to the device.
    pub tail_bytes: f64,
    /// A step with every cell on the device: what computing takes, in milliseconds.
    pub compute_ms: f64,
    /// What the link takes for the tail by its set bandwidth, in milliseconds.
    pub copy_ms: f64,
    /// A step with the ring, in milliseconds.
    pub ring_ms: f64,
    /// A step with copies that wait for their layer, in milliseconds.
    pub op_ms: f64,
    /// Times a step that the ring was not there yet.
    pub ring_stalls: f64,
}

impl CliffPoint {
    /// The best that any schedule can do: copies hidden behind the computing, or the other way round.
    #[must_use]
    pub fn ideal_ms(&self) -> f64 {
        self.compute_ms.max(self.copy_ms)
    }

    /// What a schedule takes that hides nothing.
    #[must_use]
    pub fn sum_ms(&self) -> f64 {
        self.compute_ms + self.copy_ms
    }
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CliffReport {
    /// Pass or fail.
    pub verdict: Verdict,
    /// Why, one line a threshold.
    pub reasons: Vec<String>,
    /// Bandwidth of the link, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Slots of the ring, and bytes of one.
    pub ring_depth: u64,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Median over the points with a tail of ring time over the ideal.
    pub ring_over_ideal: f64,
    /// Median over the points with a tail of op time over computing plus copying.
    pub op_over_sum: f64,
    /// Longest tail that the ring hides: its step takes at most a twentieth longer than computing. In bytes.
    pub hidden_bytes: f64,
    /// The points, from no tail to no window.
    pub points: Vec<CliffPoint>,
}

/// Ring time may be this much above the ideal.
const RING_LIMIT: f64 = 1.05;
/// Op time may be this far from computing plus copying.
const OP_TOLERANCE: f64 = 0.10;
/// Slots of the schedule that waits: what it copies, its layer then reads.
const OP_DEPTH: u32 = 1;
impl Cliff {
    /// Measures every point. `progress` is told what is being done and the share of it that is done.
    ///
    /// # Errors
    /// When a run is not possible, or when nothing was staged.
    pub fn run(
        &self,
        model: &Model,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<CliffReport, GateError> {
        subject::check(model)?;
        let tokens = self.tokens(model)?;
        let prompt = tokens.len() - self.decoded as usize;
        let (prompt, decoded) = tokens.split_at(prompt);
        let decoder = Decoder {
            model,
            n_ctx: self.n_ctx,
            copy_cells: self.copy_cells,
        };
        let saved = decoder.fill(prompt, |done| progress("reading the text", done))?;

        let mut points = Vec::new();
        let mut last = Staging::default();
        for at in 0..=self.points {
            let window = self.window(at);
            let measure = |spill: RollingKv| decoder.measure(spill, &saved, decoded);
            let compute = measure(RollingKv::resident())?;
            let mut ring = RollingKv::window_cells(window).schedule(Schedule::Ring);
            let op = RollingKv::window_cells(window)
                .schedule(Schedule::Op)
                .ring_depth(OP_DEPTH);
            if let Some(depth) = self.ring_depth {
                ring = ring.ring_depth(depth);
            }
            let ring = measure(ring)?;
            let op = measure(op)?;
            last = ring.staging;
            points.push(CliffPoint {
                window_cells: window,
                tail_bytes: op.bytes,
                compute_ms: compute.step_ms,
                copy_ms: op.bytes / self.link_bytes_per_s * 1e3,
                ring_ms: ring.step_ms,
                op_ms: op.step_ms,
                ring_stalls: ring.stalls,
            });
            progress("decoding", f64::from(at + 1) / f64::from(self.points + 1));
        }
        self.judge(prompt.len(), points, last)
    }

    fn tokens(&self, model: &Model) -> Result<Vec<Token>, GateError> {
        let least = self.decoded + 1;
        if self.n_ctx < least {
            return Err(GateError::ContextTooSmall {
                n_ctx: self.n_ctx,
                least,
            });
        }
        let needed = self.n_ctx as usize;
        let text = noise_text(self.seed, needed);
        let mut tokens = model
            .vocab()
            .tokenize(&text, AddSpecial::Auto, ParseSpecial::No)
            .map_err(rolling_kv::Error::from)?;
        tokens.truncate(needed);
        Ok(tokens)
    }

    /// From every cell to none, in steps that grow: a tail that costs nothing is short.
    fn window(&self, at: u32) -> u32 {
        const TILE: u32 = 128;
        let share = f64::from(at) / f64::from(self.points);
        let tail = f64::from(self.n_ctx) * share * share;
        (self.n_ctx - tail.round() as u32) / TILE * TILE
    }

    fn judge(
        &self,
        prompt_tokens: usize,
        points: Vec<CliffPoint>,
        ring: Staging,
    ) -> Result<CliffReport, GateError> {
        let with_tail = || points.iter().filter(|point| point.tail_bytes > 0.0);
        if with_tail().next().is_none() {
            return Err(GateError::NotEngaged);
        }
        let ring_over_ideal = median(
            &mut with_tail()
                .map(|point| point.ring_ms / point.ideal_ms())
                .collect::<Vec<_>>(),
        );
        let op_over_sum = median(
            &mut with_tail()
                .map(|point| point.op_ms / point.sum_ms())
                .collect::<Vec<_>>(),
        );
        let hidden_bytes = points
            .iter()
            .take_while(|point| point.ring_ms <= RING_LIMIT * point.compute_ms)
            .last()
            .map_or(0.0, |point| point.tail_bytes);
        let checks = [
            (
                ring_over_ideal <= RING_LIMIT,
                format!("ring over max(compute, copy): {ring_over_ideal:.3} <= {RING_LIMIT}"),
            ),
            (
                (op_over_sum - 1.0).abs() <= OP_TOLERANCE,
                format!("op over compute + copy: {op_over_sum:.3}, within {OP_TOLERANCE} of 1"),
            ),
        ];
        let verdict = if checks.iter().all(|(holds, _)| *holds) {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        Ok(CliffReport {
            verdict,
            reasons: checks
                .into_iter()
                .map(|(holds, what)| format!("{}: {what}", if holds { "ok" } else { "FAILED" }))
                .collect(),
            link_bytes_per_s: self.link_bytes_per_s,
            prompt_tokens,
            ring_depth: ring.depth,
            slot_bytes: ring.slot_bytes,
            ring_over_ideal,
            op_over_sum,
            hidden_bytes,
            points,
        })
    }
}
