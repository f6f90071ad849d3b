//! Faults that a gate puts into tiled attention to show that it can fail.

use crate::ffi;

/// A fault of tiled attention. It holds for the whole process until the guard is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The last tile of the tail is left out of the merge.
    DropTile,
    /// The second and the third tile are merged in the wrong order.
    SwapMerge,
    /// The first tile of the tail is read as it was before it was written.
    StaleTile,
    /// The row of the tail's first cell is written to the window's last one.
    WrongPart,
    /// Of a staging ring that is made meanwhile: tiles that a step writes are copied to the device ahead of the write.
    RingStale,
    /// Of a staging ring that is made meanwhile: a slot is filled again without waiting for its reader.
    RingReuse,
    /// Of a staging ring that is made meanwhile: a change of the tail between two steps is not noticed.
    RingGeneration,
    /// Of a staging ring that is made meanwhile: tiles that were copied ahead are taken for the first ones of whatever runs next.
    RingIdentity,
    /// Of staging rings that are made meanwhile: they share their slots with the device's oldest ring.
    RingOwner,
    /// A cache goes on telling the device which cells its first step wrote and had in use.
    StepFrozen,
    /// K of the tail stays as it is when its tokens move to other positions.
    MoveWindow,
    /// Turning K to other positions breaks off half way.
    MoveBreaks,
    /// The host engine begins with a layer when the step does, with whatever lies where the layer's query will be.
    HostEarly,
    /// Partials of the host engine are merged without waiting for them.
    HostUnwaited,
}

impl Fault {
    /// Injects the fault until the guard is dropped. For tests and gates: what models say meanwhile is wrong.
    #[must_use]
    pub fn inject(self) -> FaultGuard {
        let raw = match self {
            Self::DropTile => ffi::RKV_FAULT_DROP_TILE,
            Self::SwapMerge => ffi::RKV_FAULT_SWAP_MERGE,
            Self::StaleTile => ffi::RKV_FAULT_STALE_TILE,
            Self::WrongPart => ffi::RKV_FAULT_WRONG_PART,
            Self::RingStale => ffi::RKV_FAULT_RING_STALE,
            Self::RingReuse => ffi::RKV_FAULT_RING_REUSE,
            Self::RingGeneration => ffi::RKV_FAULT_RING_GENERATION,
            Self::RingIdentity => ffi::RKV_FAULT_RING_IDENTITY,
            Self::RingOwner => ffi::RKV_FAULT_RING_OWNER,
            Self::StepFrozen => ffi::RKV_FAULT_STEP_FROZEN,
            Self::MoveWindow => ffi::RKV_FAULT_MOVE_WINDOW,
            Self::MoveBreaks => ffi::RKV_FAULT_MOVE_BREAKS,
            Self::HostEarly => ffi::RKV_FAULT_HOST_EARLY,
            Self::HostUnwaited => ffi::RKV_FAULT_HOST_UNWAITED,
        };
        // SAFETY: stores one atomic number.
        unsafe { ffi::rkv_fault_set(raw) };
        FaultGuard(())
    }
}

/// Ends an injected fault when it is dropped.
#[derive(Debug)]
pub struct FaultGuard(());

impl Drop for FaultGuard {
    fn drop(&mut self) {
        // SAFETY: stores one atomic number.
        unsafe { ffi::rkv_fault_set(ffi::RKV_FAULT_NONE) };
    }
}
