#pragma once

// How a device stages tiles when nobody says: cells of a copy and slots of the ring, from its free memory and the speed of its
// link. Neither changes a bit of the result, so both may differ from machine to machine; the tile, which does, may not.

#include "rkv-step.h"

#include <cstdint>

namespace rkv {

// A link as it was measured.
struct link_speed {
    double bytes_s   = 0; // bandwidth, bytes per second
    double latency_s = 0; // of one copy, seconds
};

// What was chosen, or asked for.
struct staging_plan {
    uint32_t copy_cells = 0; // cells of a copy, whole tiles
    uint32_t depth      = 0; // slots
    uint64_t slot_bytes = 0;
};

// Bytes of a slot for `cells` cells: K and V, each aligned.
uint64_t slot_bytes(const rkv_staging_need & need, uint32_t cells);

staging_plan plan_staging(const rkv_staging_params & asked, const rkv_staging_need & need, uint64_t free_bytes, const link_speed & link);

} // namespace rkv
