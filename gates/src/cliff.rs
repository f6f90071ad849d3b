//! What a tail costs: decode time over its length, for a ring that runs ahead and for copies that wait for their layer.
//!
//! The time is the device's own where it reckons one, so that the ratios are those of the schedules and not of this machine's
//! moods; else it is the time of day.

use rolling_kv::{Model, RollingKv, Schedule, StateBlob, TailEngine, Token};

use crate::cliff_report::{CliffPoint, CliffReport, CliffThresholds};
use crate::decode_time::{self, Decoder, WARM_UP};
use crate::error::GateError;
use crate::store::Store;
use crate::subject;

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
    /// By which numbers it is judged.
    pub thresholds: CliffThresholds,
}

/// Slots of the schedule that waits: what it copies, its layer then reads.
const OP_DEPTH: u32 = 1;
/// A window is a whole number of these.
const TILE: u32 = 128;

/// The text in a cache, and what is decoded behind it. Made when the first point wants it.
struct Text<'a> {
    prompt: &'a [Token],
    decoded: &'a [Token],
    saved: Option<StateBlob>,
}

impl Cliff {
    /// Measures every point. `progress` is told what is being done and the share of it that is done; a point that is in `store` is not
    /// measured again.
    ///
    /// # Errors
    /// When a run is not possible, or when nothing was staged.
    pub fn run(
        &self,
        model: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<CliffReport, GateError> {
        subject::check(model)?;
        subject::fits(model, "the text", self.n_ctx, "--ctx")?;
        let tokens = decode_time::text(model, self.n_ctx, self.decoded, self.seed)?;
        let (prompt, decoded) = tokens.split_at(tokens.len() - self.decoded as usize);
        let mut text = Text {
            prompt,
            decoded,
            saved: None,
        };

        let mut points = Vec::new();
        for at in 0..=self.points {
            let key = format!("point {at}, window {}", self.window(at));
            let point = store.get(&key, || self.point(model, &mut text, at, &mut progress))?;
            points.push(point);
            progress("decoding", f64::from(at + 1) / f64::from(self.points + 1));
        }
        CliffReport::judge(
            self.link_bytes_per_s,
            prompt.len(),
            points,
            &self.thresholds,
        )
    }

    fn point(
        &self,
        model: &Model,
        text: &mut Text<'_>,
        at: u32,
        progress: &mut impl FnMut(&'static str, f64),
    ) -> Result<CliffPoint, GateError> {
        let decoder = Decoder {
            model,
            n_ctx: self.n_ctx,
            copy_cells: self.copy_cells,
            threads: None,
            warm_up: WARM_UP,
        };
        let saved = match &mut text.saved {
            Some(saved) => saved,
            none => none.insert(decoder.fill(text.prompt, |done| {
                progress("reading the text", done);
            })?),
        };
        let window_cells = self.window(at);
        let measure = |spill: RollingKv| decoder.measure(spill, saved, text.decoded);
        let compute = measure(RollingKv::resident())?;
        let streamed = RollingKv::window_cells(window_cells).tail_engine(TailEngine::Stream);
        let mut ring = streamed.clone().schedule(Schedule::Ring);
        let op = streamed.schedule(Schedule::Op).ring_depth(OP_DEPTH);
        if let Some(depth) = self.ring_depth {
            ring = ring.ring_depth(depth);
        }
        let ring = measure(ring)?;
        let op = measure(op)?;
        Ok(CliffPoint {
            window_cells,
            tail_bytes: op.bytes,
            compute_ms: compute.step_ms,
            copy_ms: op.bytes / self.link_bytes_per_s * 1e3,
            ring_ms: ring.step_ms,
            op_ms: op.step_ms,
            ring_stalls: ring.stalls,
            ring_depth: ring.staging.depth,
            slot_bytes: ring.staging.slot_bytes,
        })
    }

    /// From every cell to none, in steps that grow: a tail that costs nothing is short.
    fn window(&self, at: u32) -> u32 {
        let share = f64::from(at) / f64::from(self.points);
        let tail = f64::from(self.n_ctx) * share * share;
        (self.n_ctx - tail.round() as u32) / TILE * TILE
    }
}
