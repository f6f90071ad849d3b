//! What a caller asks of a context's KV cache.

use std::ops::RangeInclusive;

use crate::context_params::{ContextParams, FlashAttention, KvType};
use crate::error::RollingKvError;
use crate::ffi;
use crate::local::LocalLayers;
use crate::model::Model;
use crate::tail::TailEngine;

/// The order in which attention goes over the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Order {
    /// A layer whose cells all lie in its window keeps llama.cpp's own attention, bit for bit; once spilled, tiles.
    #[default]
    Auto,
    /// Tile by tile from the first token, resident or not: the same bits for every window, budget and thread count.
    Tiled,
}

/// When the tail's tiles are copied to a device that computes with its own memory. It moves time, never a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// Ahead of the layers that read them, across layers and steps.
    #[default]
    Ring,
    /// Layer by layer, once the layer's attention has begun: what a double buffer inside the attention kernel does. To measure
    /// against.
    Op,
}

/// What becomes of a request to move tokens to other positions while some cells lie in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Shift {
    /// K is turned to its new positions in both parts. With [`Order::Tiled`], the same bits for every window.
    #[default]
    Rerope,
    /// It is refused: [`Memory::can_shift`](crate::Memory::can_shift) is false.
    Guard,
}

/// Who turns K in host memory when tokens move to other positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShiftPath {
    /// Who is reckoned to be faster, by the measured rates of the host's kernel and of the link.
    #[default]
    Auto,
    /// The host, where the rows lie.
    Host,
    /// The layer's device, which reads and writes the rows over its link.
    Device,
}

/// How many cells of a layer lie in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    Cells(u32),
    Resident,
    Auto { vram_target: u64 },
}

/// A KV cache of which only a window lies in device memory; the other cells lie in host memory, and attention over both
/// parts is exact.
///
/// ```
/// use rolling_kv::{ContextParams, Order, RollingKv};
/// let spill = RollingKv::vram_budget_mib(4096).resident_layers(0..=4).order(Order::Tiled);
/// let params = ContextParams::new(131_072).rolling_kv(spill);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct RollingKv {
    window: Window,
    order: Order,
    tile_cells: Option<u32>,
    layers: Vec<(u32, Window)>,
    schedule: Schedule,
    ring_depth: u32,
    copy_cells: u32,
    engine: TailEngine,
    host_threads: u32,
    tail_k: Option<KvType>,
    tail_v: Option<KvType>,
    shift: Shift,
    shift_path: ShiftPath,
    local: Option<LocalLayers>,
}

impl RollingKv {
    /// The first `cells` of each layer and stream in device memory. Rounded down to whole tiles; 0 puts every cell into
    /// host memory.
    pub fn window_cells(cells: u32) -> Self {
        Self::new(Window::Cells(cells))
    }

    /// Every cell in device memory. With [`Order::Tiled`] this is the twin that every spilled context equals.
    pub fn resident() -> Self {
        Self::new(Window::Resident)
    }

    /// As many cells as fit into this much device memory, in MiB, over all layers.
    pub fn vram_budget_mib(mib: u64) -> Self {
        Self::new(Window::Auto {
            vram_target: mib.saturating_mul(1 << 20),
        })
    }

    /// As many cells as fit into the device's free memory.
    pub fn auto() -> Self {
        Self::new(Window::Auto { vram_target: 0 })
    }

    fn new(window: Window) -> Self {
        Self {
            window,
            order: Order::Auto,
            tile_cells: None,
            layers: Vec::new(),
            schedule: Schedule::Ring,
            ring_depth: 0,
            copy_cells: 0,
            engine: TailEngine::Auto,
            host_threads: 0,
            tail_k: None,
            tail_v: None,
            shift: Shift::Rerope,
            shift_path: ShiftPath::Auto,
            local: None,
        }
    }

    /// The order of attention.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Cells of a tile, a multiple of 32; 128 unless set. The bits of [`Order::Tiled`] belong to one tile size.
    pub fn tile_cells(mut self, cells: u32) -> Self {
        self.tile_cells = Some(cells);
        self
    }

    /// When tiles are copied to the device.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Copies that may be on their way to the device, or wait there, at a time; each takes a slot of device memory. Chosen from
    /// the free device memory and the measured link unless set.
    pub fn ring_depth(mut self, slots: u32) -> Self {
        self.ring_depth = slots;
        self
    }

    /// Cells that are brought to the device in one copy, rounded down to whole tiles, at least one. Chosen from the free device
    /// memory and the measured link unless set; no bit of a result depends on it.
    pub fn copy_cells(mut self, cells: u32) -> Self {
        self.copy_cells = cells;
        self
    }

    /// Who attends to cells in host memory in steps of few queries.
    pub fn tail_engine(mut self, engine: TailEngine) -> Self {
        self.engine = engine;
        self
    }

    /// Threads of the host engine, which sleep while it has nothing to do; as many as the context computes with unless set.
    pub fn host_threads(mut self, threads: u32) -> Self {
        self.host_threads = threads;
        self
    }

    /// Type of K in host memory, at most as large as that of the cache. Attention over what is stored stays exact, but what is
    /// stored is rounded as in a quantised cache: **this changes what the model says**. A saved state holds the cache's own types, so
    /// that rows of the tail are rounded once more when they come back.
    pub fn tail_type_k(mut self, kind: KvType) -> Self {
        self.tail_k = Some(kind);
        self
    }

    /// Type of V in host memory; see [`RollingKv::tail_type_k`].
    pub fn tail_type_v(mut self, kind: KvType) -> Self {
        self.tail_v = Some(kind);
        self
    }

    /// What becomes of a request to move tokens to other positions.
    pub fn shift(mut self, shift: Shift) -> Self {
        self.shift = shift;
        self
    }

    /// Who turns K in host memory when tokens move.
    pub fn shift_path(mut self, path: ShiftPath) -> Self {
        self.shift_path = path;
        self
    }

    /// Lets these layers see the first and the newest tokens only. **This changes what the model says**; see [`LocalLayers`].
    pub fn local_layers(mut self, layers: LocalLayers) -> Self {
        self.local = Some(layers);
        self
    }

    /// Keeps these layers wholly in device memory.
    pub fn resident_layers(mut self, layers: RangeInclusive<u32>) -> Self {
        self.layers
            .extend(layers.map(|layer| (layer, Window::Resident)));
        self
    }

    /// Gives one layer a window of its own. A layer that looks back a fixed number of tokens only (a sliding window of the
    /// model's) stays on the device; a context is refused if one is given for it.
    pub fn layer_window(mut self, layer: u32, cells: u32) -> Self {
        self.layers.push((layer, Window::Cells(cells)));
        self
    }

    /// Checks the request against the model and the other parameters, once.
    pub(crate) fn check(
        &self,
        model: &Model,
        params: &ContextParams,
    ) -> Result<Checked, RollingKvError> {
        let tile = self.tile_cells.unwrap_or(ffi::RKV_TILE_DEFAULT);
        if tile == 0 || !tile.is_multiple_of(ffi::RKV_TILE_MIN) || tile > ffi::RKV_TILE_MAX {
            return Err(RollingKvError::Tile {
                asked: tile,
                step: ffi::RKV_TILE_MIN,
                max: ffi::RKV_TILE_MAX,
            });
        }
        if params.flash_attention == FlashAttention::Off {
            return Err(RollingKvError::FlashAttentionOff);
        }
        if params.type_k == KvType::F32 || params.type_v == KvType::F32 {
            return Err(RollingKvError::CacheOfF32);
        }
        if params.kv_on_host {
            return Err(RollingKvError::CacheOnHost);
        }
        check_tail_type("keys", self.tail_k, params.type_k)?;
        check_tail_type("values", self.tail_v, params.type_v)?;

        let n_layer = model.n_layer();
        let mut layer_window = vec![i64::from(ffi::RKV_WINDOW_DEFAULT); n_layer as usize];
        for &(layer, window) in &self.layers {
            let slot = layer_window
                .get_mut(layer as usize)
                .ok_or(RollingKvError::Layer { layer, n_layer })?;
            *slot = window.to_ffi();
        }
        if let Some(local) = &self.local {
            local.check(model)?;
        }
        Ok(Checked {
            asked: self.clone(),
            tile,
            layer_window,
        })
    }
}

fn check_tail_type(
    what: &'static str,
    asked: Option<KvType>,
    cache: KvType,
) -> Result<(), RollingKvError> {
    match asked {
        Some(asked) if asked.bits() > cache.bits() => {
            Err(RollingKvError::TailType { what, asked, cache })
        }
        _ => Ok(()),
    }
}

impl Window {
    fn to_ffi(self) -> i64 {
        match self {
            Self::Cells(cells) => i64::from(cells),
            Self::Resident => i64::from(ffi::RKV_WINDOW_RESIDENT),
            Self::Auto { .. } => i64::from(ffi::RKV_WINDOW_AUTO),
        }
    }
}

/// A request that was checked. Owns what the C struct points to.
pub(crate) struct Checked {
    asked: RollingKv,
    tile: u32,
    layer_window: Vec<i64>,
}

impl Checked {
    /// The C struct; it points into `self`.
    pub(crate) fn to_ffi(&self) -> ffi::rkv_params {
        let asked = &self.asked;
        let mut params = ffi::rkv_params {
            mode: ffi::RKV_MODE_WINDOW,
            order: match asked.order {
                Order::Auto => ffi::RKV_ORDER_AUTO,
                Order::Tiled => ffi::RKV_ORDER_TILED,
            },
            window_cells: asked.window.to_ffi(),
            tile_cells: self.tile,
            vram_target: match asked.window {
                Window::Auto { vram_target } => vram_target,
                _ => 0,
            },
            reserve_bytes: 0,
            layer_window: self.layer_window.as_ptr(),
            n_layer_window: self.layer_window.len(),
            staging: ffi::rkv_staging_params {
                schedule: match asked.schedule {
                    Schedule::Ring => ffi::RKV_SCHEDULE_RING,
                    Schedule::Op => ffi::RKV_SCHEDULE_OP,
                },
                depth: asked.ring_depth,
                copy_cells: asked.copy_cells,
                engine: asked.engine.to_ffi(),
                host_threads: asked.host_threads,
            },
            shift: match asked.shift {
                Shift::Rerope => ffi::RKV_SHIFT_REROPE,
                Shift::Guard => ffi::RKV_SHIFT_GUARD,
            },
            shift_path: match asked.shift_path {
                ShiftPath::Auto => ffi::RKV_SHIFT_PATH_AUTO,
                ShiftPath::Host => ffi::RKV_SHIFT_PATH_HOST,
                ShiftPath::Device => ffi::RKV_SHIFT_PATH_DEVICE,
            },
            tail_type_k: asked.tail_k.map_or(0, |kind| 1 + kind.to_ffi()),
            tail_type_v: asked.tail_v.map_or(0, |kind| 1 + kind.to_ffi()),
            local_layers: std::ptr::null(),
            n_local_layers: 0,
            local_cells: 0,
            local_first: 0,
            local_n_layer: 0,
        };
        if let Some(local) = &asked.local {
            local.put(&mut params);
        }
        params
    }
}
