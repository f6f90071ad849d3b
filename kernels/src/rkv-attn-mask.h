#pragma once

// Which cells a block of queries can see, tile by tile. Found once a node, so that a tile that is masked for a whole
// block costs a look-up, and a tile without a mask entry costs no mask arithmetic.

#include "rkv-attn-args.h"

namespace rkv {

static constexpr uint16_t F16_NEG_INF = 0xfc00;

struct tile_mask {
    int32_t begin, end; // every live cell of the tile lies in [begin, end); none is live when begin >= end
    int32_t n_rows;     // mask rows (of queries and of head planes) that have a live cell
    int32_t plain;      // 1: every entry is 0
};

class mask_table {
public:
    // Entries for `n_q` queries in blocks of `q_block`.
    static size_t size_bytes(const attn_args & a, int q_block);

    mask_table(const attn_args & a, int q_block, tile_mask * entries);

    // Scans share `ith` of `nth` of the mask, if there is one. Threads that share a table meet at a barrier after it.
    void fill(int ith, int nth);

    // What a block of queries of a stream sees of tile t.
    tile_mask at(int stream, int block, int t) const;

    bool is_live(int stream, int block, int t) const {
        const tile_mask m = at(stream, block, t);
        return m.begin < m.end;
    }

    // Whether any query of the stream sees a cell of tile t.
    bool is_live(int stream, int t) const;

    int n_block() const { return n_q_block; }

private:
    const attn_args & a;
    tile_mask *       entries; // [streams of the mask, blocks, tiles]
    int               q_block;
    int               n_q_block;
};

// What all queries of a stream see of tile t, looked at now.
tile_mask mask_of_tile(const attn_args & a, int stream, int t);

} // namespace rkv
