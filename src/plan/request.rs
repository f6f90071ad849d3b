//! What a plan is asked.

use crate::context_params::KvType;
use crate::error::PlanError;
use crate::ffi;

/// A context is made of a whole number of these cells.
const CTX_STEP: u32 = 256;

/// The longest context that is planned.
const CTX_MAX: u32 = 1 << 30;

/// Tokens of a prompt that llama.cpp computes at a time unless told otherwise.
const UBATCH: u32 = 512;

/// What a plan is asked: a context, and how much of it is in use.
///
/// ```
/// use rolling_kv::{KvType, PlanRequest};
/// let request = PlanRequest::new(131_072).depth(100_000).types(KvType::F16, KvType::F16).vram_budget_mib(8192);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct PlanRequest {
    pub(crate) n_ctx: u32,
    pub(crate) depth: Option<u32>,
    pub(crate) streams: u32,
    pub(crate) ubatch: u32,
    pub(crate) window_cells: Option<u32>,
    pub(crate) vram_target: u64,
    pub(crate) tile_cells: u32,
    pub(crate) ring_slots: u32,
    pub(crate) copy_cells: u32,
    pub(crate) types: (KvType, KvType),
    pub(crate) tail_types: Option<(KvType, KvType)>,
}

impl PlanRequest {
    /// A context of so many tokens, all of them in use, with a window that is chosen.
    pub fn new(n_ctx: u32) -> Self {
        Self {
            n_ctx,
            depth: None,
            streams: 1,
            ubatch: UBATCH,
            window_cells: None,
            vram_target: 0,
            tile_cells: ffi::RKV_TILE_DEFAULT,
            ring_slots: 0,
            copy_cells: 0,
            types: (KvType::F16, KvType::F16),
            tail_types: None,
        }
    }

    /// Tokens in the cache when a token is decoded.
    pub fn depth(mut self, tokens: u32) -> Self {
        self.depth = Some(tokens);
        self
    }

    /// Sequences that are decoded together, each with a context of its own.
    pub fn streams(mut self, streams: u32) -> Self {
        self.streams = streams.max(1);
        self
    }

    /// Tokens of a prompt that are computed at a time.
    pub fn ubatch(mut self, tokens: u32) -> Self {
        self.ubatch = tokens.max(1);
        self
    }

    /// The window, in cells of each layer and sequence. Chosen from the device's free memory unless set.
    pub fn window_cells(mut self, cells: u32) -> Self {
        self.window_cells = Some(cells);
        self
    }

    /// Device memory that the window may take, in MiB.
    pub fn vram_budget_mib(mut self, mib: u64) -> Self {
        self.vram_target = mib.saturating_mul(1 << 20);
        self
    }

    /// Cells of a tile, a multiple of 32; 128 unless set.
    pub fn tile_cells(mut self, cells: u32) -> Self {
        self.tile_cells = cells;
        self
    }

    /// Slots of the staging ring and cells of a copy; 0: chosen as a device would.
    pub fn ring(mut self, slots: u32, copy_cells: u32) -> Self {
        (self.ring_slots, self.copy_cells) = (slots, copy_cells);
        self
    }

    /// How K and V are stored.
    pub fn types(mut self, k: KvType, v: KvType) -> Self {
        self.types = (k, v);
        self
    }

    /// How K and V of the tail are stored; as in the window unless set.
    pub fn tail_types(mut self, k: KvType, v: KvType) -> Self {
        self.tail_types = Some((k, v));
        self
    }

    /// Cells of each sequence.
    pub(crate) fn check(&self) -> Result<u32, PlanError> {
        let n_ctx = self.n_ctx;
        if n_ctx == 0 || n_ctx > CTX_MAX {
            return Err(PlanError::Context {
                n_ctx,
                max: CTX_MAX,
            });
        }
        let (asked, step, max) = (self.tile_cells, ffi::RKV_TILE_MIN, ffi::RKV_TILE_MAX);
        if asked == 0 || !asked.is_multiple_of(step) || asked > max {
            return Err(PlanError::Tile { asked, step, max });
        }
        match self.depth {
            Some(depth) if depth > n_ctx => Err(PlanError::Depth { depth, n_ctx }),
            _ => Ok(n_ctx.next_multiple_of(CTX_STEP)),
        }
    }

    pub(crate) fn to_ffi(&self, n_ctx: u32) -> ffi::rkv_plan_ask {
        ffi::rkv_plan_ask {
            n_ctx: n_ctx.into(),
            depth: self.depth.unwrap_or(self.n_ctx).into(),
            n_stream: self.streams,
            n_ubatch: self.ubatch,
            window_cells: match self.window_cells {
                Some(cells) => cells.into(),
                None => ffi::RKV_WINDOW_AUTO.into(),
            },
            vram_target: self.vram_target,
            reserve_bytes: 0,
            tile_cells: self.tile_cells,
            staging: ffi::rkv_staging_params {
                schedule: ffi::RKV_SCHEDULE_RING,
                depth: self.ring_slots,
                copy_cells: self.copy_cells,
                engine: ffi::RKV_TAIL_ENGINE_AUTO,
                host_threads: 0,
            },
        }
    }
}
