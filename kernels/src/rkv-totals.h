#pragma once

// What a device counts of its staging, from its parts.

#include "rkv-balance.h"
#include "rkv-ring.h"
#include "rkv-step.h"

namespace rkv {

inline void add_ring(rkv_staging_totals & t, const ring_totals & r) {
    t.steps           += r.steps;
    t.tiles_early     += r.tiles_early;
    t.tiles_late      += r.tiles_late;
    t.tiles_kept      += r.tiles_kept;
    t.tiles_discarded += r.tiles_discarded;
    t.bytes           += r.bytes;
    t.bytes_late      += r.bytes_late;
}

// `h`: tiles, bytes, down, up and wait_ns. `balance`: NULL while there is none.
template <typename host_totals> void set_host(rkv_staging_totals & t, const host_totals & h, uint64_t steps, const tail_balance * balance) {
    t.host_steps   = steps;
    t.host_tiles   = h.tiles;
    t.host_bytes   = h.bytes;
    t.host_down    = h.down;
    t.host_up      = h.up;
    t.host_wait_ns = h.wait_ns;
    if (balance) {
        t.host_changes = balance->changes();
        t.host_bytes_s = balance->host_bytes_s();
        t.host_share   = balance->host_share();
    }
}

} // namespace rkv
