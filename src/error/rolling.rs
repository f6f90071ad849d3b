use crate::context_params::KvType;

/// Why a [`RollingKv`](crate::RollingKv) request cannot be met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RollingKvError {
    /// A tile is not a whole number of steps, or too long.
    #[error("a tile of {asked} cells is not possible: use a multiple of {step} up to {max}")]
    Tile {
        /// What was asked for, in cells.
        asked: u32,
        /// What it must be a multiple of.
        step: u32,
        /// The longest tile.
        max: u32,
    },
    /// There is no such layer.
    #[error("layer {layer} is out of range: the model has layers 0 to {}", n_layer.saturating_sub(1))]
    Layer {
        /// The layer that was named.
        layer: u32,
        /// Layers of the model.
        n_layer: u32,
    },
    /// Attention over two parts is flash attention.
    #[error(
        "a window needs flash attention, and flash_attention is off: use FlashAttention::Auto or On, or leave out rolling_kv"
    )]
    FlashAttentionOff,
    /// llama.cpp converts a cache of f32 as a whole before attention reads it.
    #[error(
        "a cache of f32 cannot have a window, because it is converted to f16 as a whole: use f16, bf16 or a quantised type"
    )]
    CacheOfF32,
    /// The cache was asked to stay in host memory as a whole.
    #[error(
        "kv_on_host puts the whole cache into host memory, so there is no window: use one of the two"
    )]
    CacheOnHost,
    /// Rows in host memory that would be larger than those on the device.
    #[error(
        "the tail's {what} cannot have type {asked} beside a cache of {cache}: use a type that is smaller, or give none"
    )]
    TailType {
        /// Keys or values.
        what: &'static str,
        /// The type that was asked for.
        asked: KvType,
        /// The cache's own type.
        cache: KvType,
    },
    /// A local layer that sees nothing.
    #[error("local layers of 0 cells would see nothing: give at least 1")]
    NoLocalCells,
    /// Local layers are a matter of the model.
    #[error(
        "the local layers were accepted for another model: run `rolling-kv gate budget` on this one"
    )]
    LocalLayersOfAnotherModel,
}
