//! What the device staged, for `--json`.

use rolling_kv::Staging;
use serde::Serialize;

/// The slots and the copies of a run's staging ring.
#[derive(Serialize)]
pub struct StagingJson {
    /// As measured.
    pub link_bytes_per_s: f64,
    pub link_latency_s: f64,
    pub ring_depth: u64,
    pub copy_cells: u64,
    pub slot_bytes: u64,
    pub device_bytes: u64,
    pub steps: u64,
    /// Copies, each of one or several tiles.
    pub tiles_early: u64,
    pub tiles_late: u64,
    pub tiles_kept: u64,
    pub tiles_discarded: u64,
    pub bytes: u64,
    pub bytes_late: u64,
    pub stalls: u64,
    pub stall_ms: f64,
    /// Parts of steps that were launched as captured graphs.
    pub graph_launches: u64,
    /// What the host attended to for the device.
    pub host_steps: u64,
    pub host_tiles: u64,
    pub host_bytes: u64,
    pub host_bytes_down: u64,
    pub host_bytes_up: u64,
    pub host_wait_ms: f64,
    pub host_changes: u64,
    pub host_bytes_per_s: f64,
    pub host_share: f64,
    /// Of a device whose time is reckoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<f64>,
}

impl StagingJson {
    pub fn new(staging: &Staging) -> Self {
        Self {
            link_bytes_per_s: staging.link_bytes_per_s,
            link_latency_s: staging.link_latency_s,
            ring_depth: staging.depth,
            copy_cells: staging.copy_cells,
            slot_bytes: staging.slot_bytes,
            device_bytes: staging.device_bytes,
            steps: staging.steps,
            tiles_early: staging.tiles_early,
            tiles_late: staging.tiles_late,
            tiles_kept: staging.tiles_kept,
            tiles_discarded: staging.tiles_discarded,
            bytes: staging.bytes,
            bytes_late: staging.bytes_late,
            stalls: staging.stalls,
            stall_ms: staging.stall_ns as f64 / 1e6,
            graph_launches: staging.graph_launches,
            host_steps: staging.host_steps,
            host_tiles: staging.host_tiles,
            host_bytes: staging.host_bytes,
            host_bytes_down: staging.host_bytes_down,
            host_bytes_up: staging.host_bytes_up,
            host_wait_ms: staging.host_wait_ns as f64 / 1e6,
            host_changes: staging.host_changes,
            host_bytes_per_s: staging.host_bytes_per_s,
            host_share: staging.host_share,
            device_ms: (staging.device_ns > 0).then_some(staging.device_ns as f64 / 1e6),
        }
    }
}
