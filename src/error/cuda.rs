//! What keeps the CUDA driver from being asked.

/// Why a card cannot be measured. A machine without a driver is no error: [`CudaDriver`](crate::CudaDriver) says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver, or it does not start.
    #[error("{reason}\n  next: install NVIDIA's driver, or measure a simulated device")]
    NoDriver {
        /// Why it cannot be used.
        reason: String,
    },
    /// The driver knows no such card.
    #[error(
        "there is no card {ordinal}; the driver knows {cards}\n  next: see `rolling-kv doctor`"
    )]
    NoCard {
        /// The one that was named.
        ordinal: u32,
        /// How many it knows.
        cards: u32,
    },
    /// Nothing can be copied and timed.
    #[error("copies of {bytes} bytes cannot be timed\n  next: give at least 4096")]
    Bytes {
        /// What was asked for.
        bytes: usize,
    },
    /// The driver refused.
    #[error(
        "the driver could not {what}: {reason}\n  next: free memory on the card, and look at it with nvidia-smi"
    )]
    Driver {
        /// What was tried.
        what: &'static str,
        /// What the driver said.
        reason: String,
    },
}
