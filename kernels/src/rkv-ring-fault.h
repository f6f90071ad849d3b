#pragma once

#include "rkv-attn-node.h"
#include "rkv-ring.h"

namespace rkv {

// What a ring that is made now gets wrong.
inline ring_fault ring_fault_now() {
    switch (rkv_fault_get()) {
        case RKV_FAULT_RING_STALE:      return RING_FAULT_STALE;
        case RKV_FAULT_RING_REUSE:      return RING_FAULT_REUSE;
        case RKV_FAULT_RING_GENERATION: return RING_FAULT_GENERATION;
        case RKV_FAULT_RING_IDENTITY:   return RING_FAULT_IDENTITY;
        default:                        return RING_FAULT_NONE;
    }
}

} // namespace rkv
