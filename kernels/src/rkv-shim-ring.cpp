// The C surface of the staging ring's plans.

#include "rkv-attn-node.h"
#include "rkv-ring-api.h"
#include "rkv-ring.h"

struct rkv_ring {
    rkv::ring ring;
};

static rkv::ring_fault fault_of(uint32_t fault) {
    switch (fault) {
        case RKV_FAULT_RING_STALE:      return rkv::RING_FAULT_STALE;
        case RKV_FAULT_RING_REUSE:      return rkv::RING_FAULT_REUSE;
        case RKV_FAULT_RING_GENERATION: return rkv::RING_FAULT_GENERATION;
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
        list[i].node = tiles[i].node;
        list[i].late = tiles[i].late;
        list[i].k    = { (const char *) (uintptr_t) tiles[i].source, 1, 1, 1 };
    }
    const rkv::ring_plan plan = ring->ring.begin(list, n_nodes, generation);
    for (size_t i = 0; i < plan.uses.size(); ++i) {
        uses[i] = { uint32_t(plan.uses[i].lane), plan.uses[i].seq, plan.uses[i].released };
    }
    for (size_t i = 0; i < plan.copies.size(); ++i) {
        const rkv::ring_copy & c = plan.copies[i];
        copies[i] = { uint32_t(c.lane), c.seq, (uint64_t) (uintptr_t) c.tile.k.src, c.after_released, c.after_begun };
    }
    return { plan.copies.size(), plan.discarded, plan.first_node };
}
