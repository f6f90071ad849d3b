#include "rkv-plan.h"

#include <algorithm>

namespace rkv {

static constexpr uint64_t SLOT_ALIGNMENT = 256;

// A copy takes at least so many times its latency, so that what queueing does not hide of it is a fifth at most.
static constexpr double LATENCIES = 4;

// The link works on for so long while no tile is read: output, sampling, and the next graph. Slots hold what it brings.
static constexpr double LEAD_S = 5e-3;

// Of the free memory, what the slots may take; and of the tails, for which there would else be room in a larger window.
static constexpr uint64_t SHARE      = 8;
static constexpr uint64_t TAIL_SHARE = 4;

static constexpr uint32_t DEPTH_MIN = 2;
static constexpr uint32_t DEPTH_MAX = 1024;

static uint64_t round_up(uint64_t n, uint64_t step) {
    return (n + step - 1)/step*step;
}

uint64_t slot_bytes(const rkv_staging_need & need, uint32_t cells) {
    return round_up(cells*need.k_row_bytes, SLOT_ALIGNMENT) + round_up(cells*need.v_row_bytes, SLOT_ALIGNMENT);
}

// Whole tiles, one at least, and no more than the longest tail has.
static uint32_t asked_cells(const rkv_staging_need & need, uint32_t cells) {
    const uint64_t most = round_up(need.cells_layer, need.tile_cells);
    return uint32_t(std::clamp<uint64_t>(cells/need.tile_cells*need.tile_cells, need.tile_cells, std::max<uint64_t>(most, need.tile_cells)));
}

// Doubled while a copy is short for its latency, a layer's tail is still two copies, and two slots are within the share.
static uint32_t choose_cells(const rkv_staging_need & need, uint64_t share, const link_speed & link) {
    const double wanted = LATENCIES*link.latency_s*link.bytes_s;
    uint32_t     cells  = need.tile_cells;
    while (double(slot_bytes(need, cells)) < wanted && 2*cells <= need.cells_layer/2 && DEPTH_MIN*slot_bytes(need, 2*cells) <= share) {
        cells *= 2;
    }
    return cells;
}

staging_plan plan_staging(const rkv_staging_params & asked, const rkv_staging_need & need, uint64_t free_bytes, const link_speed & link) {
    const uint64_t share = free_bytes/SHARE;

    staging_plan plan;
    plan.copy_cells = asked.copy_cells ? asked_cells(need, asked.copy_cells) : choose_cells(need, share, link);
    plan.slot_bytes = slot_bytes(need, plan.copy_cells);
    plan.depth      = asked.depth;
    if (plan.depth == 0) {
        const uint64_t lead   = uint64_t(LEAD_S*link.bytes_s/double(plan.slot_bytes)) + 1;
        const uint64_t fits   = share/plan.slot_bytes;
        const uint64_t of_tail = need.cells_all/plan.copy_cells/TAIL_SHARE;
        plan.depth = uint32_t(std::clamp<uint64_t>(std::min({ lead, fits, of_tail }), DEPTH_MIN, DEPTH_MAX));
    }
    return plan;
}

} // namespace rkv
