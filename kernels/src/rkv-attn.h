#pragma once

// Attention over cells that lie in two parts (window and tail), on the CPU. See rkv-attn-node.h for the node.
//
// The cells are cut in tiles; a (tile, head, query) gives one partial (M, S, O), and partials are merged in ascending
// order of tiles. A partial depends only on its tile's rows of K, V and mask, on the query's row and on the node's
// parameters; so the result has the same bits for every border between window and tail, for every stride and for
// every number of threads.

#include "ggml.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// Computes `dst`, a GGML_OP_FLASH_ATTN_EXT node, when it is tiled; every thread of the pool calls it. Returns false, and
// does nothing, when it is not. Aborts on a node whose shapes break the contract of rkv-attn-node.h.
// dst: [d_v, n_head, n_q, n_stream] f32
bool rkv_cpu_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// Bytes of work buffer that the call above needs with at most `n_tasks` threads; 0 when the node is not tiled.
// Up to 16 queries: partials of as many tiles as fit 8 MiB (at least one tile), n_head*n_q*(d_v + 2) floats a tile, plus
// scores and unpacked rows of each thread. More queries: buffers for one block of queries and one tile, of each thread.
// Neither grows with n_kv, but for 16 bytes a (block of queries, tile) that say which cells are masked.
size_t rkv_cpu_flash_attn_work_size(const struct ggml_tensor * node, int n_tasks);

#ifdef __cplusplus
}
#endif
