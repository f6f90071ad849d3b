#pragma once

// What an attention node asks for, read once from its tensors and parameters.

#include "ggml.h"
#include "rkv-attn-node.h"

#include <stddef.h>
#include <stdint.h>

namespace rkv {

// Up to this many queries count as decoding: partials of tiles are kept, and merged at the end.
static constexpr int TILES_QUERIES_MAX = RKV_ATTN_QUERIES_FEW;

// K and V rows of one tile, of one stream. Row (cell, head) of K starts at k + cell*k_nb_cell + head*k_nb_head.
struct tile_rows {
    const char * k;
    const char * v;
    size_t       k_nb_cell, k_nb_head; // bytes
    size_t       v_nb_cell, v_nb_head; // bytes
    ggml_type    k_type, v_type;       // window and tail may differ
    int          n_cells;
};

struct attn_args {
    const ggml_tensor * q;         // [d_k, n_q, n_head, n_stream] f32
    const ggml_tensor * part_k[2]; // [d_k, cells of the part, n_head_kv, n_stream]; window, then tail or NULL
    const ggml_tensor * part_v[2]; // [d_v, cells of the part, n_head_kv, n_stream]
    const ggml_tensor * mask;      // [n_kv, >= n_q, 1 or n_head, 1 or n_stream] f16, or NULL
    const float       * sinks;     // [n_head], or NULL
    ggml_tensor       * dst;       // [d_v, n_head, n_q, n_stream] f32

    int     d_k, d_v;
    int     n_q, n_head, n_head_kv, n_stream;
    int     n_gqa;                 // query heads of one KV head
    int64_t n_kv, n_win;           // cells, and how many of them lie in the window
    int     tile;                  // cells of a full tile
    int     n_tile;                // tiles, the short last one included
    int     n_tile_win;            // of which in the window

    float   scale;                 // already divided by the cap when there is one
    float   softcap;               // 0: none
    float   max_bias;              // ALiBi; 0: none

    const rkv_tile_feed * feed;    // brings tiles while the node runs, or NULL

    rkv_fault fault;               // as it was when the node began
    int       drop_tile;           // tile that a fault leaves out, or -1

    // Weight of the mask for a query head.
    float slope(int head) const;

    // The tile that is merged at place `i`: i itself, unless a fault swaps two. A feed brings tiles in their order only.
    int tile_at(int i) const { return !feed && fault == RKV_FAULT_SWAP_MERGE && n_tile > 2 && (i == 1 || i == 2) ? 3 - i : i; }

    int     tile_cells(int t) const { const int64_t n = n_kv - (int64_t) t*tile; return n < tile ? (int) n : tile; }
    int64_t tile_begin(int t) const { return (int64_t) t*tile; }
    tile_rows rows(int stream, int t) const;

    // With a feed: the rows after waiting for them, and giving them back. Every thread calls both for every tile, in order.
    bool      fed(int stream, int t) const { return feed && feed->brings(feed->user, stream, t); }
    bool      by_host(int stream, int t) const { return feed && feed->by_host(feed->user, stream, t); }
    tile_rows rows_fed(int stream, int t) const;
    void      release_fed(int stream, int t, int nth) const { feed->release(feed->user, stream, t, nth); }

    const float * query(int stream, int head, int iq) const {
        return (const float *) ((const char *) q->data + iq*q->nb[1] + head*q->nb[2] + stream*q->nb[3]);
    }
    // Mask row of a query, from cell 0 of the cache on; the caller knows that there is a mask.
    const ggml_fp16_t * mask_row(int stream, int head, int iq) const {
        return (const ggml_fp16_t *) ((const char *) mask->data + iq*mask->nb[1] +
            (head % mask->ne[2])*mask->nb[2] + (stream % mask->ne[3])*mask->nb[3]);
    }
    float * output(int stream, int head, int iq) const {
        return (float *) ((char *) dst->data + head*dst->nb[1] + iq*dst->nb[2] + stream*dst->nb[3]);
    }
};

// Cells of a tile; 0 when the node is not tiled.
int attn_tile(const ggml_tensor * node);

// Reads shapes and parameters; no data pointer is followed, so it serves for planning too. Aborts when the node
// breaks its contract.
attn_args attn_args_read(const ggml_tensor * node);

} // namespace rkv
