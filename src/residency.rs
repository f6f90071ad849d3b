//! Where a context's KV cache lies, and what attention did with it.

use std::fmt;

use crate::context::Context;
use crate::error::human;
use crate::ffi;

/// The part of a layer's cache that a cell lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Device memory.
    Window,
    /// Host memory.
    Tail,
}

/// K or V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The key.
    K,
    /// The value.
    V,
}

/// Where one layer's cache lies, and what its attention did since the context was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerResidency {
    /// Layer of the model.
    pub layer: u32,
    /// Whether it belongs to the sliding-window cache, which stays resident.
    pub sliding: bool,
    /// Cells of a stream, in both parts.
    pub kv_size: u32,
    /// Cells of a stream in device memory.
    pub window_cells: u32,
    /// Streams: 1 for a unified cache, else the number of sequences.
    pub n_stream: u32,
    /// Of a local layer: how many first and newest tokens its attention sees. `window_cells` is then the rows that it keeps.
    pub local: Option<Local>,
    /// K and V in device memory, in bytes.
    pub device_bytes: u64,
    /// K and V in host memory, in bytes.
    pub host_bytes: u64,
    /// What tiled attention did.
    pub counters: Counters,
}

/// What a local layer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// Tokens at the beginning.
    pub first: u32,
    /// Newest tokens.
    pub cells: u32,
}

/// What tiled attention did, and moves of positions. All zero while llama.cpp's own attention runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Attention nodes that ran in tiles.
    pub nodes: u64,
    /// Tiles read from the window, once a node.
    pub tiles_window: u64,
    /// Tiles read from the tail, once a node.
    pub tiles_tail: u64,
    /// Partials merged: one a tile, head and query.
    pub partials_merged: u64,
    /// Bytes of K and V of the tail's cells, once a node.
    pub tail_bytes_read: u64,
    /// Cells of the window whose K was turned to another position.
    pub moved_window: u64,
    /// Cells of the tail whose K the host turned to another position.
    pub moved_host: u64,
    /// Cells of the tail whose K the layer's device turned, over its link.
    pub moved_device: u64,
    /// Of the tail's tiles, those whose partials the host engine computed, once a node.
    pub tiles_host: u64,
    /// Bytes of K and V of their cells.
    pub host_bytes_read: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.tiles_window += other.tiles_window;
        self.tiles_tail += other.tiles_tail;
        self.partials_merged += other.partials_merged;
        self.tail_bytes_read += other.tail_bytes_read;
        self.moved_window += other.moved_window;
        self.moved_host += other.moved_host;
        self.moved_device += other.moved_device;
        self.tiles_host += other.tiles_host;
        self.host_bytes_read += other.host_bytes_read;
    }
}

/// Where a context's KV cache lies.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Whether the context has a window.
    pub active: bool,
    /// Whether every attention node runs in tiles.
    pub tiled: bool,
    /// Cells of a tile; 0 without a window.
    pub tile_cells: u32,
    /// Every layer that holds K and V.
    pub layers: Vec<LayerResidency>,
}

impl Residency {
    /// K and V in device memory over all layers, in bytes.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.device_bytes).sum()
    }

    /// K and V in host memory over all layers, in bytes.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.host_bytes).sum()
    }

    /// What tiled attention did over all layers.
    #[must_use]
    pub fn totals(&self) -> Counters {
        let mut totals = Counters::default();
        for layer in &self.layers {
            totals += layer.counters;
        }
        totals
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.active {
            return write!(
                f,
                "no window: {} of KV cache",
                human(self.device_bytes() + self.host_bytes())
            );
        }
        let spilling = self
            .layers
            .iter()
            .filter(|layer| layer.local.is_none() && layer.window_cells < layer.kv_size)
            .count();
        let windows = self
            .layers
            .iter()
            .filter(|layer| !layer.sliding && layer.local.is_none())
            .map(|layer| layer.window_cells);
        let (low, high) = (
            windows.clone().min().unwrap_or(0),
            windows.max().unwrap_or(0),
        );
        let kv_size = self
            .layers
            .iter()
            .map(|layer| layer.kv_size)
            .max()
            .unwrap_or(0);
        let totals = self.totals();

        if low == high {
            write!(f, "window {high} of {kv_size} cells")?;
        } else {
            write!(f, "window {low} to {high} of {kv_size} cells")?;
        }
        write!(
            f,
            ", {spilling} of {} layers with a tail",
            self.layers.len()
        )?;
        write!(
            f,
            ", order {}, tiles of {} cells",
            if self.tiled { "tiled" } else { "auto" },
            self.tile_cells
        )?;
        write!(
            f,
            "; {} on the device, {} in host memory",
            human(self.device_bytes()),
            human(self.host_bytes())
        )?;
        write!(
            f,
            "; {} tiled attention nodes, {} tiles from the window, {} from the tail ({} read)",
            totals.nodes,
            totals.tiles_window,
            totals.tiles_tail,
            human(totals.tail_bytes_read)
        )?;
        let local = self.layers.iter().filter_map(|layer| layer.local);
        if let Some(Local { first, cells }) = local.clone().next() {
            let n = local.count();
            write!(
                f,
                "; {n} local layers see the first {first} and the newest {cells} tokens only"
            )?;
        }
        let moved = totals.moved_window + totals.moved_host + totals.moved_device;
        if moved > 0 {
            write!(
                f,
                "; moved to other positions: {} cells of windows, {} of tails by the host, {} by the device",
                totals.moved_window, totals.moved_host, totals.moved_device
            )?;
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Where the cache lies, layer by layer, and what attention did since the context was made.
    #[must_use]
    pub fn residency(&self) -> Residency {
        // SAFETY: plain numbers, for which all zeroes is a value.
        let mut info: ffi::rkv_residency_info = unsafe { std::mem::zeroed() };
        // SAFETY: the context lives and `info` is valid for the call to fill.
        unsafe { ffi::rkv_residency_info_get(self.raw.as_ptr(), &raw mut info) };

        let layers = (0..info.n_layers)
            .filter_map(|entry| {
                // SAFETY: plain numbers, for which all zeroes is a value.
                let mut raw: ffi::rkv_layer_residency = unsafe { std::mem::zeroed() };
                // SAFETY: the context lives and `raw` is valid for the call to fill.
                let found =
                    unsafe { ffi::rkv_residency_layer_get(self.raw.as_ptr(), entry, &raw mut raw) };
                found.then(|| LayerResidency::from_ffi(&raw))
            })
            .collect();
        Residency {
            active: info.active != 0,
            tiled: info.tiled != 0,
            tile_cells: info.tile_cells,
            layers,
        }
    }

    /// One cell's row of entry `entry` of [`Residency::layers`], and the part it lies in. `None` when there is no such cell.
    ///
    /// Shape: the bytes of one row as the cache's type stores it.
    #[must_use]
    pub fn read_cell(
        &mut self,
        entry: usize,
        row: Row,
        stream: u32,
        cell: u32,
    ) -> Option<(Part, Vec<u8>)> {
        let entry = u32::try_from(entry).ok()?;
        // SAFETY: the context lives.
        let bytes = unsafe { ffi::rkv_cell_bytes(self.raw.as_ptr(), entry, row == Row::V) };
        let mut data = vec![0; usize::try_from(bytes).ok()?];
        // SAFETY: `data` has room for one row, which is what the call writes.
        let part = unsafe {
            ffi::rkv_cell_read(
                self.raw.as_mut_ptr(),
                entry,
                row == Row::V,
                stream,
                cell,
                data.as_mut_ptr().cast(),
            )
        };
        Some((Part::from_ffi(part)?, data))
    }

    /// Overwrites one cell's row. For tests and gates that must see a wrong byte: what the model says afterwards is wrong.
    ///
    /// Answers `None`, and changes nothing, when there is no such cell or `data` is not one row long.
    pub fn overwrite_cell(
        &mut self,
        entry: usize,
        row: Row,
        stream: u32,
        cell: u32,
        data: &[u8],
    ) -> Option<Part> {
        let entry = u32::try_from(entry).ok()?;
        // SAFETY: the context lives.
        let bytes = unsafe { ffi::rkv_cell_bytes(self.raw.as_ptr(), entry, row == Row::V) };
        if bytes != data.len() as u64 {
            return None;
        }
        // SAFETY: `data` is one row long, which is what the call reads.
        let part = unsafe {
            ffi::rkv_cell_write(
                self.raw.as_mut_ptr(),
                entry,
                row == Row::V,
                stream,
                cell,
                data.as_ptr().cast(),
            )
        };
        Part::from_ffi(part)
    }
}

impl Part {
    fn from_ffi(raw: ffi::rkv_part) -> Option<Self> {
        match raw {
            ffi::RKV_PART_WINDOW => Some(Self::Window),
            ffi::RKV_PART_TAIL => Some(Self::Tail),
            _ => None,
        }
    }
}

impl LayerResidency {
    fn from_ffi(raw: &ffi::rkv_layer_residency) -> Self {
        Self {
            layer: u32::try_from(raw.layer).unwrap_or(0),
            sliding: raw.sliding != 0,
            kv_size: raw.kv_size,
            window_cells: raw.window_cells,
            n_stream: raw.n_stream,
            local: (raw.local != 0).then_some(Local {
                first: raw.local_first,
                cells: raw.local_cells,
            }),
            device_bytes: raw.device_bytes,
            host_bytes: raw.host_bytes,
            counters: Counters {
                nodes: raw.counters.nodes,
                tiles_window: raw.counters.tiles_window,
                tiles_tail: raw.counters.tiles_tail,
                partials_merged: raw.counters.partials_merged,
                tail_bytes_read: raw.counters.tail_bytes_read,
                moved_window: raw.counters.moved_window,
                moved_host: raw.counters.moved_host,
                moved_device: raw.counters.moved_device,
                tiles_host: raw.counters.tiles_host,
                host_bytes_read: raw.counters.host_bytes_read,
            },
        }
    }
}
