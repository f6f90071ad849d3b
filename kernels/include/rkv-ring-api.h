#pragma once

// rolling-kv: the staging ring's plans and sizes, without a device. For tests that run every order in which a device could carry them
// out.

#include "llama.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rkv_ring;

// One tile of one attention node. `source` stands for where its bytes lie.
struct rkv_ring_tile {
    uint32_t node;
    uint64_t source;
    uint32_t rows_stable; // rows that the step leaves alone, from the first on
    uint32_t rows_all;    // rows in use, those that the step writes included
};

// One copy, as rkv-ring.h describes it: rows [row0, row0 + rows) of a tile. Lane 0 runs ahead, lane 1 is the late one.
struct rkv_ring_copy {
    uint32_t lane;
    uint64_t number;
    uint64_t seq;
    uint64_t source;
    uint32_t row0;
    uint32_t rows;
    uint64_t after_released;
    uint64_t after_begun;
    uint64_t after_ahead;
};

struct rkv_ring_use {
    uint64_t seq;
    uint64_t copied[2];
    uint64_t released;
};

struct rkv_ring_plan {
    size_t   n_copies;
    uint64_t discarded;
    uint64_t first_node;
};

// `op`: copies wait for their node. `fault`: a RKV_FAULT_RING_*, or RKV_FAULT_NONE.
LLAMA_API struct rkv_ring * rkv_ring_new(bool op, uint32_t depth, uint32_t fault);
LLAMA_API void              rkv_ring_free(struct rkv_ring * ring);

// Plans a step. `uses` has room for n_tiles, `copies` for 2*n_tiles + depth.
LLAMA_API struct rkv_ring_plan rkv_ring_begin(struct rkv_ring * ring, const struct rkv_ring_tile * tiles, size_t n_tiles, uint32_t n_nodes,
        uint64_t generation, struct rkv_ring_use * uses, struct rkv_ring_copy * copies);

// What a device with so much free memory, behind such a link, chooses.
struct rkv_staging_choice {
    uint32_t copy_cells;
    uint32_t depth;
    uint64_t slot_bytes;
};

LLAMA_API struct rkv_staging_choice rkv_staging_choose(const struct rkv_staging_params * asked, const struct rkv_staging_need * need,
        uint64_t free_bytes, double link_bytes_s, double link_latency_s);

#ifdef __cplusplus
}
#endif
