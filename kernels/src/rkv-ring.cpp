#include "rkv-ring.h"

#include <algorithm>

namespace rkv {

ring::ring(ring_schedule schedule, uint32_t depth, ring_fault fault) : schedule(schedule), n_slot(std::max(depth, 1u)), fault(fault) {}

ring_copy ring::copy_to(ring_lane lane, const ring_tile & tile, uint64_t after_begun) {
    const uint64_t number = seq[lane]++;
    const uint64_t free   = number < n_slot || fault == RING_FAULT_REUSE ? 0 : number - n_slot + 1;
    sums.bytes += tile.bytes();
    return { lane, number, tile, free, after_begun };
}

// How many of the copies that were given ahead are what the step's first early tiles need.
size_t ring::keep(const std::vector<const ring_tile *> & early, uint64_t now) {
    size_t n = 0;
    if (now == generation || fault == RING_FAULT_GENERATION) {
        while (n < ahead.size() && n < early.size() && ahead[n].tile.same_source(*early[n])) {
            ++n;
        }
    }
    return n;
}

// The next step will most likely begin with the same tiles; those that this step writes it will write again.
void ring::run_ahead(const std::vector<const ring_tile *> & early, uint64_t first_node, ring_plan & plan) {
    for (const ring_tile * tile : early) {
        if (ahead.size() == n_slot) {
            return;
        }
        ahead.push_back(copy_to(RING_EARLY, *tile, first_node));
        plan.copies.push_back(ahead.back());
    }
}

bool ring::goes_late(const ring_tile & tile) const {
    return tile.late && schedule == ring_schedule::ring && fault != RING_FAULT_STALE;
}

ring_plan ring::begin(const std::vector<ring_tile> & tiles, uint32_t n_nodes, uint64_t now) {
    std::vector<const ring_tile *> early;
    for (const ring_tile & tile : tiles) {
        if (!goes_late(tile)) {
            early.push_back(&tile);
        }
    }
    const size_t   n_kept     = keep(early, now);
    const uint64_t first_kept = seq[RING_EARLY] - ahead.size();
    const uint64_t given      = seq[RING_EARLY];
    sums.tiles_kept      += n_kept;
    sums.tiles_discarded += ahead.size() - n_kept;

    ring_plan plan;
    plan.first_node = n_begun;
    plan.discarded  = n_kept == 0 && !ahead.empty() ? given : 0;

    size_t n_early = 0;
    for (const ring_tile & tile : tiles) {
        const uint64_t node = n_begun + tile.node;
        const bool     op   = schedule == ring_schedule::op;
        (op || goes_late(tile) ? sums.tiles_late : sums.tiles_early)++;
        if (goes_late(tile)) {
            plan.uses.push_back({ RING_LATE, seq[RING_LATE], seq[RING_LATE] + 1 });
            plan.copies.push_back(copy_to(RING_LATE, tile, node + 1));
        } else if (n_early < n_kept) {
            const uint64_t number = first_kept + n_early++;
            plan.uses.push_back({ RING_EARLY, number, n_early == n_kept ? given : number + 1 });
        } else {
            plan.uses.push_back({ RING_EARLY, seq[RING_EARLY], seq[RING_EARLY] + 1 });
            plan.copies.push_back(copy_to(RING_EARLY, tile, op ? node + 1 : n_begun));
        }
    }

    ahead.clear();
    generation = now;
    if (schedule == ring_schedule::ring) {
        run_ahead(early, n_begun, plan);
    }
    n_begun += n_nodes;
    sums.steps++;
    return plan;
}

} // namespace rkv
