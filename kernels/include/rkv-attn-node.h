#pragma once

// rolling-kv: the attention node whose cells lie in two parts.
//
// A GGML_OP_FLASH_ATTN_EXT node is tiled when its op parameter RKV_OP_PARAM_TILE is not 0. Then
//   src[0] q      [d_k, n_q, n_head, n_stream] f32
//   src[1] k      [d_k, n_win, n_head_kv, n_stream], src[2] v [d_v, n_win, n_head_kv, n_stream]: the window
//   src[3] mask   [n_kv, >= n_q, 1 or n_head, 1 or n_stream] f16, or NULL: one mask over all cells
//   src[4] sinks  [n_head] f32, or NULL
//   src[5] k_tail, src[6] v_tail: the cells n_win .. n_kv, or both NULL when every cell lies in src[1], src[2]
// A window that does not hold every cell is a whole number of tiles, so a tile never straddles the border.

#include "ggml.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rkv_op_param {
    RKV_OP_PARAM_TILE     = 8,  // cells of a tile; 0: not tiled, the stock path
    RKV_OP_PARAM_LAYER    = 9,  // layer of the model, for the counters; -1 when unknown
    RKV_OP_PARAM_COUNTERS = 10, // 10 and 11: a struct rkv_layer_counters * of the owning cache, or NULL
};

enum rkv_attn_src {
    RKV_ATTN_SRC_K_TAIL = 5,
    RKV_ATTN_SRC_V_TAIL = 6,
};

// What one layer's tiled attention did since its cache was made. Written by one thread a node.
struct rkv_layer_counters {
    uint64_t nodes;           // attention nodes evaluated
    uint64_t tiles_window;    // tiles read from the window, once a node
    uint64_t tiles_tail;      // tiles read from the tail, once a node
    uint64_t partials_merged; // (tile, head, query) partials merged
    uint64_t tail_bytes_read; // bytes of K and V of the tail's cells, once a node
};

// Faults that a gate injects to show that it can fail. RKV_FAULT_NONE outside of gates.
enum rkv_fault {
    RKV_FAULT_NONE = 0,
    RKV_FAULT_DROP_TILE  = 1, // the newest tile of the tail that a query sees is left out of the merge
    RKV_FAULT_SWAP_MERGE = 2, // the second and the third tile are merged in the wrong order
    RKV_FAULT_STALE_TILE = 3, // the tail's first tile is read as it was before it was written: as zeroes
    RKV_FAULT_WRONG_PART = 4, // the row of the tail's first cell is written to the window's last one
};

GGML_API void rkv_fault_set(enum rkv_fault fault);
GGML_API enum rkv_fault rkv_fault_get(void);

#ifdef __cplusplus
}
#endif
