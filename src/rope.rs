//! How a layer turns K by its position.

use crate::context::Context;
use crate::ffi;

/// How one layer turns K: RoPE, <https://arxiv.org/abs/2104.09864>, equation 34.
///
/// Pair `i` of the rotated channels is turned by `position * scale * base^(-2i / rotated)`, in radians, when the angles are
/// [plain](Self::plain).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LayerRope {
    /// Channels of a head.
    pub head: u32,
    /// Channels of them that are turned, two a pair.
    pub rotated: u32,
    /// The first of those.
    pub offset: u32,
    /// Whether pair `i` is of channels `i` and `i + rotated / 2`; else `2i` and `2i + 1`.
    pub halves: bool,
    /// Neither YaRN nor factors of the model's own change the angles.
    pub plain: bool,
    /// Base of the frequencies.
    pub base: f32,
    /// Factor of every position.
    pub scale: f32,
}

impl Context<'_> {
    /// How entry `entry` of [`Residency::layers`](crate::Residency::layers) turns K. `None` when there is no such entry, or it turns
    /// nothing.
    #[must_use]
    pub fn layer_rope(&self, entry: usize) -> Option<LayerRope> {
        let entry = u32::try_from(entry).ok()?;
        // SAFETY: plain numbers, for which all zeroes is a value.
        let mut raw: ffi::rkv_layer_rope = unsafe { std::mem::zeroed() };
        // SAFETY: the context lives and `raw` is valid for the call to fill.
        let found = unsafe { ffi::rkv_layer_rope_get(self.raw.as_ptr(), entry, &raw mut raw) };
        found.then_some(LayerRope {
            head: raw.head,
            rotated: raw.rotated,
            offset: raw.offset,
            halves: raw.halves,
            plain: raw.plain,
            base: raw.freq_base,
            scale: raw.freq_scale,
        })
    }
}
