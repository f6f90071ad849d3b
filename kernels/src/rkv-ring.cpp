#include "rkv-ring.h"

#include <algorithm>

namespace rkv {

ring::ring(ring_schedule schedule, uint32_t depth, ring_fault fault) : schedule(schedule), n_slot(std::max(depth, 1u)), fault(fault) {}

void ring::copy(ring_plan & plan, ring_lane lane, uint64_t of_seq, size_t index, size_t row0, const ring_part & part, uint64_t after_begun,
                uint64_t after_ahead) {
    if (part.bytes() == 0) {
        return;
    }
    const uint64_t free = of_seq < n_slot || fault == RING_FAULT_REUSE ? 0 : of_seq - n_slot + 1;
    plan.copies.push_back({ lane, number[lane]++, of_seq, index, row0, part, free, after_begun, after_ahead });
    sums.bytes += part.bytes();
}

// How many of the tiles that were given ahead are what the step's first tiles need.
size_t ring::keep(const std::vector<ring_tile> & tiles, uint64_t now) const {
    if (now != generation && fault != RING_FAULT_GENERATION) {
        return 0;
    }
    size_t n = 0;
    while (n < ahead.size() && n < tiles.size() && (ahead[n].part == tiles[n].stable || fault == RING_FAULT_IDENTITY)) {
        ++n;
    }
    return n;
}

// Gives a tile the next slot, and the copy of what does not wait for the step's write.
ring_use ring::place(ring_plan & plan, const std::vector<ring_tile> & tiles, size_t index) {
    const ring_tile & tile = tiles[index];
    const uint64_t    own  = seq++;
    if (schedule == ring_schedule::op) {
        copy(plan, RING_AHEAD, own, index, 0, tile.all, n_begun + tile.node + 1);
    } else {
        copy(plan, RING_AHEAD, own, index, 0, fault == RING_FAULT_STALE ? tile.all : tile.stable, n_begun);
    }
    return { own, { number[RING_AHEAD], 0 }, own + 1 };
}

// The next step will most likely begin with the same tiles, and write behind what this one wrote. A tile that this step writes
// is complete once its node has begun.
void ring::run_ahead(ring_plan & plan, const std::vector<ring_tile> & tiles, uint64_t first_node) {
    for (size_t i = 0; i < tiles.size() && ahead.size() < n_slot; ++i) {
        const ring_tile & tile = tiles[i];
        const bool waits = tile.written.bytes() > 0 && fault != RING_FAULT_STALE;
        copy(plan, RING_AHEAD, seq++, i, 0, tile.all, waits ? first_node + tile.node + 1 : first_node);
        ahead.push_back({ tile.all, number[RING_AHEAD] });
    }
}

ring_plan ring::begin(const std::vector<ring_tile> & tiles, uint32_t n_nodes, uint64_t now) {
    const size_t   n_kept     = keep(tiles, now);
    const uint64_t first_kept = seq - ahead.size();
    const uint64_t given      = seq;
    sums.tiles_kept      += n_kept;
    sums.tiles_discarded += ahead.size() - n_kept;

    ring_plan plan;
    plan.first_node = n_begun;
    plan.discarded  = n_kept == 0 && !ahead.empty() ? given : 0;

    for (size_t i = 0; i < tiles.size(); ++i) {
        const ring_tile & tile = tiles[i];
        ring_use use = { first_kept + i, { 0, 0 }, i + 1 == n_kept ? given : first_kept + i + 1 };
        if (i < n_kept) {
            use.copied[RING_AHEAD] = ahead[i].copied;
        } else {
            use = place(plan, tiles, i);
        }
        const bool late = schedule == ring_schedule::op || tile.stable.bytes() == 0;
        (late ? sums.tiles_late : sums.tiles_early)++;
        sums.bytes_late += schedule == ring_schedule::op ? tile.all.bytes() : tile.written.bytes();
        if (schedule == ring_schedule::ring && fault != RING_FAULT_STALE) {
            copy(plan, RING_LATE, use.seq, i, tile.stable.k.rows, tile.written, n_begun + tile.node + 1, use.copied[RING_AHEAD]);
        }
        use.copied[RING_LATE] = number[RING_LATE];
        plan.uses.push_back(use);
    }

    ahead.clear();
    generation = now;
    if (schedule == ring_schedule::ring) {
        run_ahead(plan, tiles, n_begun);
    }
    n_begun += n_nodes;
    sums.steps++;
    return plan;
}

} // namespace rkv
