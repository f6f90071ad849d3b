// The C surface of the staging ring's plans.

#include "rkv-attn-node.h"
#include "rkv-plan.h"
#include "rkv-ring-api.h"
#include "rkv-ring.h"

// Addresses of one source: its rows are a byte each.
static constexpr uint64_t SOURCE_BYTES = 1 << 16;

struct rkv_ring {
    rkv::ring ring;
};

static rkv::ring_fault fault_of(uint32_t fault) {
    switch (fault) {
        case RKV_FAULT_RING_STALE:      return rkv::RING_FAULT_STALE;
        case RKV_FAULT_RING_REUSE:      return rkv::RING_FAULT_REUSE;
        case RKV_FAULT_RING_GENERATION: return rkv::RING_FAULT_GENERATION;
        case RKV_FAULT_RING_IDENTITY:   return rkv::RING_FAULT_IDENTITY;
        default:                        return rkv::RING_FAULT_NONE;
    }
}

struct rkv_ring * rkv_ring_new(bool op, uint32_t depth, uint32_t fault) {
    return new rkv_ring{ rkv::ring(op ? rkv::ring_schedule::op : rkv::ring_schedule::ring, depth, fault_of(fault)) };
}

void rkv_ring_free(struct rkv_ring * ring) {
    delete ring;
}

struct rkv_ring_plan rkv_ring_begin(struct rkv_ring * ring, const struct rkv_ring_tile * tiles, size_t n_tiles, uint32_t n_nodes,
        uint64_t generation, struct rkv_ring_use * uses, struct rkv_ring_copy * copies) {
    std::vector<rkv::ring_tile> list(n_tiles);
    for (size_t i = 0; i < n_tiles; ++i) {
        const auto part = [&](uint32_t from, uint32_t to) {
            return rkv::ring_part{ { (const char *) (uintptr_t) (tiles[i].source*SOURCE_BYTES + from), 1, 1, to - from }, {} };
        };
        list[i].node    = tiles[i].node;
        list[i].stable  = part(0, tiles[i].rows_stable);
        list[i].written = part(tiles[i].rows_stable, tiles[i].rows_all);
        list[i].all     = part(0, tiles[i].rows_all);
    }
    const rkv::ring_plan plan = ring->ring.begin(list, n_nodes, generation);
    for (size_t i = 0; i < plan.uses.size(); ++i) {
        const rkv::ring_use & u = plan.uses[i];
        uses[i] = { u.seq, { u.copied[rkv::RING_AHEAD], u.copied[rkv::RING_LATE] }, u.released };
    }
    for (size_t i = 0; i < plan.copies.size(); ++i) {
        const rkv::ring_copy & c = plan.copies[i];
        copies[i] = { uint32_t(c.lane), c.number, c.seq, tiles[c.index].source, uint32_t(c.row0), uint32_t(c.part.k.rows), c.after_released, c.after_begun, c.after_ahead };
    }
    return { plan.copies.size(), plan.discarded, plan.first_node };
}

struct rkv_staging_choice rkv_staging_choose(const struct rkv_staging_params * asked, const struct rkv_staging_need * need,
        uint64_t free_bytes, double link_bytes_s, double link_latency_s) {
    const rkv::staging_plan plan = rkv::plan_staging(*asked, *need, free_bytes, { link_bytes_s, link_latency_s });
    return { plan.copy_cells, plan.depth, plan.slot_bytes };
}
