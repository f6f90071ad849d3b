#pragma once

// Reads ahead: a thread will read its rows of K and V in a known order, tile after tile, so their lines are asked for
// a fixed distance before they are needed. The hardware's own prefetcher stops at pages and at the jumps between K
// and V.

#include "rkv-attn-args.h"

namespace rkv {

// KV heads [head0, head1) of one tile.
struct ahead_tile {
    tile_rows rows;
    int       head0, head1;
};

class read_ahead {
public:
    // Fills the next tile to read; false at the end.
    typedef bool (*next_fn)(void * source, ahead_tile & next);

    read_ahead(const attn_args & a, next_fn next, void * source);

    // The kernel has used `n` more rows (a row is one cell of K or of V, over the tile's heads).
    void advance(int n);

private:
    int        d_k, d_v;
    next_fn    next;
    void     * source;
    ahead_tile tile = {};
    size_t     row_bytes = 0; // of one head of one cell, of K or of V
    int        cell = 0;
    bool       in_v = true;
    bool       done = false;

    bool step();
};

} // namespace rkv
