#pragma once

// rolling-kv: attention over cells in host memory, by threads of their own, while a device does something else. The CPU backend's
// registry gives these functions by name; whoever moves tiles to a device calls them.

#include "rkv-attn-node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rkv_host_engine;
struct rkv_host_job;

struct rkv_host_tile {
    int32_t stream;
    int32_t tile;
};

struct rkv_host_engine_api {
    // `n_threads` threads, 1 or more, which sleep while there is nothing to do. NULL when they cannot be had.
    struct rkv_host_engine * (*create)(int n_threads);
    // Every job was freed before.
    void (*destroy)(struct rkv_host_engine * engine);

    // Tiles of one attention node of up to 16 queries, in the order in which they will be waited for. `node` stays until the job is
    // freed. Its K and V lie in memory that the host reads; its query and its mask may be filled in until the job is started, at the
    // addresses that they have now. `partials`: room for partial_floats a tile, or NULL: the job takes it. NULL when there is no memory.
    struct rkv_host_job * (*job_new)(struct rkv_host_engine * engine, const struct ggml_tensor * node, const struct rkv_host_tile * tiles, size_t n_tiles,
            float * partials);
    size_t (*partial_floats)(const struct ggml_tensor * node);
    // The query is there, and every row that the step writes. Starts a job once.
    void (*job_start)(struct rkv_host_job * job);
    // Waits until the partials of tile `i` of the list are there; returns the nanoseconds that it took. They are valid until the job
    // is freed. `wait` false: gives them as they are.
    uint64_t (*job_wait)(struct rkv_host_job * job, size_t i, bool wait, struct rkv_tile_partials * partials);
    // Nanoseconds from the start to the last partial so far.
    uint64_t (*job_ns)(const struct rkv_host_job * job);
    // Waits for what was started.
    void (*job_free)(struct rkv_host_job * job);
};

#define RKV_HOST_ENGINE_PROC "rkv_host_engine" // const struct rkv_host_engine_api * (void)

// A mark of a device: its partials have the bits of the host's, so that no bit tells who attended to a tile.
#define RKV_HOST_BITS_PROC "rkv_host_bits"

#ifdef __cplusplus
}
#endif
