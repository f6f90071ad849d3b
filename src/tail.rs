//! Who attends to the tail, and in what types it lies there.

use crate::ffi;

/// Who attends to cells in host memory in steps of up to 16 queries (decode, drafts). Longer steps always bring them to the device. It
/// moves time, never a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TailEngine {
    /// What the steps show to be faster: how many tiles the host gets follows from what computing, the link and the host's kernel were
    /// measured to take.
    #[default]
    Auto,
    /// The device, which brings the tiles to its memory.
    Stream,
    /// The host, where the tiles lie. Queries go down and partials come up, nothing else moves.
    Host,
    /// Both: tiles go over the link during the whole step, and the host attends to the others, split so that both end together.
    Hybrid,
}

impl TailEngine {
    /// Every engine, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Stream, Self::Host, Self::Hybrid];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stream => "stream",
            Self::Host => "host",
            Self::Hybrid => "hybrid",
        }
    }

    pub(crate) const fn to_ffi(self) -> ffi::rkv_tail_engine {
        match self {
            Self::Auto => ffi::RKV_TAIL_ENGINE_AUTO,
            Self::Stream => ffi::RKV_TAIL_ENGINE_STREAM,
            Self::Host => ffi::RKV_TAIL_ENGINE_HOST,
            Self::Hybrid => ffi::RKV_TAIL_ENGINE_HYBRID,
        }
    }
}
