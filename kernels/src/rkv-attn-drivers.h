#pragma once

// The two ways to share a node among threads. Both make the same kind of partials and merge them in the same order.

#include "rkv-arena.h"
#include "ggml-cpu-impl.h"
#include "rkv-attn-args.h"
#include "rkv-attn-mask.h"

namespace rkv {

// Up to TILES_QUERIES_MAX queries a node is split by tiles: partials go to the work buffer and are merged after a barrier.
// Above it is split by blocks of queries, and each thread merges as it goes.

// Sizes are bytes of work buffer for at most n_tasks threads; every thread calls the compute function.
size_t tiles_work_size(const attn_args & a, int n_tasks);
void   tiles_compute(attn_args & a, const ggml_compute_params * params);

size_t blocks_work_size(const attn_args & a, int n_tasks);
void   blocks_compute(attn_args & a, const ggml_compute_params * params);

// After the mask was scanned: which tile a fault drops; and, on thread 0, what the node's counters gain.
void attn_begin(attn_args & a, const mask_table & table, const ggml_compute_params * params);

} // namespace rkv
