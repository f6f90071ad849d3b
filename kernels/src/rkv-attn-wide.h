#pragma once

// Partials of many queries (prompts): matrix products over a tile, with query rows along the vectors.
//
// Queries are packed transposed once for all tiles, so K and V need only be turned to floats as they lie, and the
// softmax runs down columns without sums across lanes. The heads of one KV head share what was unpacked.

#include "rkv-arena.h"
#include "rkv-attn-args.h"
#include "rkv-attn-mask.h"

namespace rkv {

// Query rows that are computed together: heads [head0, head0 + n_heads) of one KV head and queries [q0, q0 + n_q).
// Row r is head head0 + r / n_q, query q0 + r % n_q.
struct wide_block {
    int stream;
    int head0, n_heads;
    int q0, n_q;

    int n_rows() const { return n_heads * n_q; }
};

// Buffers of one thread, for blocks of up to n_rows query rows. Columns are query rows, `ld` of them.
struct wide_scratch {
    float   * queries;  // [d_k, ld]
    float   * slopes;   // [ld]
    float   * scores;   // [cells of a tile, ld]; logits, then their exponentials
    float   * mask;     // [cells of a tile, ld]
    float   * unpacked; // [cells at a time, row of K or V]
    uint8_t * dead;     // [cells of a tile]: 1 when no query of the block sees the cell
    float   * max;      // [ld] of the tile's partials
    float   * sum;      // [ld]
    float   * o;        // [rows, ld_o] unnormalised
    int       ld, ld_o;

    static wide_scratch carve(arena & mem, const attn_args & a, int n_rows);
};

// Packs the queries of a block; once, before its tiles.
void wide_begin(const attn_args & a, const wide_block & b, wide_scratch & s);

// Partials of one tile, whose rows are given, to s.max, s.sum and s.o. The block sees a cell of the tile.
void wide_partial(const attn_args & a, const wide_block & b, int tile, const tile_rows & rows, const tile_mask & mask,
                  wide_scratch & s);

} // namespace rkv
