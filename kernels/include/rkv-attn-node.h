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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rkv_op_param {
    RKV_OP_PARAM_TILE     = 8,  // cells of a tile; 0: not tiled, the stock path
    RKV_OP_PARAM_LAYER    = 9,  // layer of the model, for the counters; -1 when unknown
    RKV_OP_PARAM_COUNTERS = 10, // 10 and 11: a struct rkv_layer_counters * of the owning cache, or NULL
    RKV_OP_PARAM_FEED     = 12, // 12 and 13: a struct rkv_tile_feed *, set by a device on its own copy of the node; or NULL
    RKV_OP_PARAM_STEP     = 14, // 14 and 15: a const struct rkv_step * of the owning cache, or NULL
};

enum rkv_attn_src {
    RKV_ATTN_SRC_K_TAIL = 5,
    RKV_ATTN_SRC_V_TAIL = 6,
};

// Up to so many queries a node is split by tiles among threads, and the host engine may attend to some of them.
#define RKV_ATTN_QUERIES_FEW 16

// What one layer's tiled attention did since its cache was made. Written by one thread a node.
struct rkv_layer_counters {
    uint64_t nodes;           // attention nodes evaluated
    uint64_t tiles_window;    // tiles read from the window, once a node
    uint64_t tiles_tail;      // tiles read from the tail, once a node
    uint64_t partials_merged; // (tile, head, query) partials merged
    uint64_t tail_bytes_read; // bytes of K and V of the tail's cells, once a node
    uint64_t all_in_tail;     // 1: the window is 0, so that every tile is the tail's
    uint64_t moved_window;    // cells of the window that were turned to another position
    uint64_t moved_host;      // cells of the tail, turned by the host
    uint64_t moved_device;    // cells of the tail, turned by the layer's device
    uint64_t tiles_host;      // tiles of the tail whose partials the host engine computed, once a node
    uint64_t host_bytes_read; // bytes of K and V of their cells
};

// One tile where the device can read it. Row (cell, head) of K starts at k + cell*k_nb_cell + head*(the node's stride of heads).
struct rkv_fed_tile {
    const void * k;
    const void * v;
    size_t       k_nb_cell; // bytes
    size_t       v_nb_cell; // bytes
};

// A tile's partials, of row = head*n_q + query: maximum sums[2*row], sum sums[2*row + 1], output o + row*ld_o: [d_v], unnormalised.
struct rkv_tile_partials {
    const float * sums;
    const float * o;
    size_t        ld_o; // floats
};

// Tiles that do not lie where the device reads them but are brought there while the node runs, or whose partials are. A tile is
// asked for by every thread of the node, in ascending order of (stream, tile), and given back by every thread, also when it was
// not needed.
struct rkv_tile_feed {
    void * user;
    // The node begins: every row that its step writes was written. Called by one thread, before any tile is asked for.
    void (*begin)(void * user);
    // Whether the feed brings this tile. Waits for nothing.
    bool (*brings)(void * user, int stream, int tile);
    // Waits until the tile is there.
    void (*acquire)(void * user, int stream, int tile, struct rkv_fed_tile * fed);
    // One of `nth` threads has read the tile, or does not need it.
    void (*release)(void * user, int stream, int tile, int nth);
    // Whether the partials of this tile are computed elsewhere. Waits for nothing. Only of nodes with few queries.
    bool (*by_host)(void * user, int stream, int tile);
    // Waits until they are there. Called by each of `nth` threads, also when they are not needed.
    void (*partials)(void * user, int stream, int tile, int nth, struct rkv_tile_partials * partials);
};

// Faults that a gate injects to show that it can fail. RKV_FAULT_NONE outside of gates.
enum rkv_fault {
    RKV_FAULT_NONE = 0,
    RKV_FAULT_DROP_TILE  = 1, // the newest tile of the tail that a query sees is left out of the merge
    RKV_FAULT_SWAP_MERGE = 2, // the second and the third tile are merged in the wrong order
    RKV_FAULT_STALE_TILE = 3, // the tail's first tile is read as it was before it was written: as zeroes
    RKV_FAULT_WRONG_PART = 4, // the row of the tail's first cell is written to the window's last one
    // Of a staging ring that is made while the fault holds.
    RKV_FAULT_RING_STALE      = 5, // tiles that a step writes are copied ahead of the write
    RKV_FAULT_RING_REUSE      = 6, // a slot is filled again without waiting for its reader
    RKV_FAULT_RING_GENERATION = 7, // a change of the tail between two steps is not noticed
    RKV_FAULT_RING_IDENTITY   = 8, // tiles that were copied ahead are taken for the first ones of whatever runs next
    RKV_FAULT_RING_OWNER      = 9, // the rings of two contexts have the same slots
    RKV_FAULT_STEP_FROZEN     = 10, // a cache goes on saying which cells its first step wrote and had in use
    RKV_FAULT_MOVE_WINDOW     = 11, // K of the tail is not turned when its cells move to other positions
    RKV_FAULT_MOVE_BREAKS     = 12, // turning K to other positions breaks off half way
    RKV_FAULT_HOST_EARLY      = 13, // the host engine begins with a layer when the step does: with the query of the step before
    RKV_FAULT_HOST_UNWAITED   = 14, // partials of the host engine are merged without waiting for them
};

GGML_API void rkv_fault_set(enum rkv_fault fault);
GGML_API enum rkv_fault rkv_fault_get(void);

#ifdef __cplusplus
}
#endif
