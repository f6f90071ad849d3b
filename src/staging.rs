//! What a context's devices did to bring the tail's tiles to their memory.

use std::fmt;

use crate::context::Context;
use crate::error::human;
use crate::ffi;

/// What a context's devices did to bring the tail's tiles to their memory. All zero until the first tile was needed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Staging {
    /// Bandwidth of the link to the device as it was measured, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Latency of one copy as it was measured, in seconds.
    pub link_latency_s: f64,
    /// Cells of a copy at the most, whole tiles.
    pub copy_cells: u64,
    /// Steps (graph evaluations) in which tiles were brought.
    pub steps: u64,
    /// Slots of the ring.
    pub depth: u64,
    /// One slot, in bytes.
    pub slot_bytes: u64,
    /// All slots, in bytes of device memory.
    pub device_bytes: u64,
    /// Copies of one or several tiles ahead of their layer, but for rows that the step itself wrote.
    pub tiles_early: u64,
    /// Copies once their layer's attention had begun: those that the step wrote from their first row on, or all with
    /// [`Schedule::Op`](crate::Schedule::Op).
    pub tiles_late: u64,
    /// Of the early ones, those that were ordered by the step before.
    pub tiles_kept: u64,
    /// Copies ahead for nothing.
    pub tiles_discarded: u64,
    /// Bytes of all copies.
    pub bytes: u64,
    /// Bytes of the copies that waited for their layer's attention to begin.
    pub bytes_late: u64,
    /// Times that attention waited for a tile.
    pub stalls: u64,
    /// How long it waited, in nanoseconds.
    pub stall_ns: u64,
    /// Time in which the compute queue had nothing to do, in nanoseconds.
    pub idle_ns: u64,
    /// Parts of steps that were launched as captured graphs: what lies between two layers' attention over a tail, on a device that
    /// captures (CUDA); 0 of any other.
    pub graph_launches: u64,
    /// Time of a simulated device that reckons it (`time=reckoned`) since the context was made, in nanoseconds; 0 of any other.
    pub device_ns: u64,
    /// Steps in which the host attended to tiles.
    pub host_steps: u64,
    /// Tiles of all attention nodes that it attended to.
    pub host_tiles: u64,
    /// Bytes of K and V that it read.
    pub host_bytes: u64,
    /// Bytes of queries and masks that went down to it.
    pub host_bytes_down: u64,
    /// Bytes of partials that came back.
    pub host_bytes_up: u64,
    /// How long attention waited for it, in nanoseconds.
    pub host_wait_ns: u64,
    /// Times that another split of the tail was chosen.
    pub host_changes: u64,
    /// Its rate as it was measured, in bytes of K and V per second; 0 when it did nothing.
    pub host_bytes_per_s: f64,
    /// Its share of the tail as it was chosen last, 0 to 1.
    pub host_share: f64,
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "link {:.2} GB/s; ring of {} slots, {} cells a copy, {} on the device; {} copies early, {} late, {} for nothing, {} in all; {} stalls, {:.1} ms",
            self.link_bytes_per_s / 1e9,
            self.depth,
            self.copy_cells,
            human(self.device_bytes),
            self.tiles_early,
            self.tiles_late,
            self.tiles_discarded,
            human(self.bytes),
            self.stalls,
            self.stall_ns as f64 / 1e6,
        )?;
        if self.host_steps == 0 {
            return Ok(());
        }
        write!(
            f,
            "; the host attended to {} tiles ({}) in {} steps, {:.0} % of the tail at last, {:.2} GB/s, waited for {:.1} ms",
            self.host_tiles,
            human(self.host_bytes),
            self.host_steps,
            100.0 * self.host_share,
            self.host_bytes_per_s / 1e9,
            self.host_wait_ns as f64 / 1e6,
        )
    }
}

impl Context<'_> {
    /// What the devices did to bring the tail's tiles to their memory, after waiting for the context's work. `None` when no
    /// device of the context has memory of its own to bring them to.
    #[must_use]
    pub fn staging(&mut self) -> Option<Staging> {
        // SAFETY: plain numbers, for which all zeroes is a value.
        let mut raw: ffi::rkv_staging_totals = unsafe { std::mem::zeroed() };
        // SAFETY: the context lives and `raw` is valid for the call to fill.
        let any = unsafe { ffi::rkv_staging_totals_get(self.raw.as_mut_ptr(), &raw mut raw) };
        any.then_some(Staging {
            link_bytes_per_s: raw.link_bytes_s,
            link_latency_s: raw.link_latency_s,
            copy_cells: raw.copy_cells,
            steps: raw.steps,
            depth: raw.depth,
            slot_bytes: raw.slot_bytes,
            device_bytes: raw.device_bytes,
            tiles_early: raw.tiles_early,
            tiles_late: raw.tiles_late,
            tiles_kept: raw.tiles_kept,
            tiles_discarded: raw.tiles_discarded,
            bytes: raw.bytes,
            bytes_late: raw.bytes_late,
            stalls: raw.stalls,
            stall_ns: raw.stall_ns,
            idle_ns: raw.idle_ns,
            graph_launches: raw.graph_launches,
            device_ns: raw.device_ns,
            host_steps: raw.host_steps,
            host_tiles: raw.host_tiles,
            host_bytes: raw.host_bytes,
            host_bytes_down: raw.host_down,
            host_bytes_up: raw.host_up,
            host_wait_ns: raw.host_wait_ns,
            host_changes: raw.host_changes,
            host_bytes_per_s: raw.host_bytes_s,
            host_share: raw.host_share,
        })
    }
}
