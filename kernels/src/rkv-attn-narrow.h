#pragma once

// Partials of few queries (decode): the cells of a tile are walked in the order of memory, and every query row reads
// them while they are in registers. Rows of K and V are used as they lie; they are unpacked to floats only when
// they are quantised, or when so many query rows share a KV head that unpacking once is cheaper. Neither changes a bit.

#include "rkv-attn-ahead.h"
#include "rkv-attn-args.h"
#include "rkv-attn-mask.h"
#include "rkv-attn-narrow-q8.h"
#include "rkv-arena.h"

namespace rkv {

// A query row is one (head, query) of a stream: row = head*n_q + query. Rows of one KV head are consecutive.
struct narrow_tile {
    int       stream;
    int       tile;
    int       row0, row1; // query rows [row0, row1)
    tile_rows rows;
    tile_mask mask;
};

struct cell_run {
    int begin, end;
};

// Buffers of one thread.
struct narrow_scratch {
    float        * scores;   // [rows, cells of a tile rounded up]; logits, then their exponentials
    float        * queries;  // [rows, d_k rounded up to whole vectors]
    float        * slopes;   // [n_head]
    float        * unpacked; // [UNPACK_FLOATS, or four rows, or q8_0 rows of Q8_CELLS cells when those are longer]
    q8_query     * quants;   // [blocks of d_k, rows]: the queries once more, where q8_0 rows are multiplied as they are
    uint16_t     * dead;     // [cells of a tile]: 1 when no query sees the cell
    cell_run     * runs;     // [cells of a tile / 2 + 1]
    int            n_run;
    int            ld_scores;

    // What `queries` and `quants` are of; -1: of nothing yet.
    int  stream, row0, row1;
    bool has_quants;

    // Takes the buffers for up to `n_rows` query rows.
    static narrow_scratch carve(arena & mem, const attn_args & a, int n_rows);
};

// Partials of rows [row0, row1): head_sums[2*i] = maximum, head_sums[2*i + 1] = sum, o + i*ld_o: [d_v] unnormalised.
// ld_o is d_v rounded up to whole vectors. The tile has a live cell.
void narrow_partial(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead,
                    float * head_sums, float * o, int ld_o);

// The two passes over a tile, one a file.
void narrow_scores(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead);
void narrow_values(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead,
                   float * o, int ld_o);

// Query rows of KV head h within [row0, row1).
struct head_rows {
    int begin, end;
};
static inline head_rows rows_of_head(const attn_args & a, const narrow_tile & t, int h) {
    const int n = a.n_gqa * a.n_q;
    return { h*n > t.row0 ? h*n : t.row0, (h + 1)*n < t.row1 ? (h + 1)*n : t.row1 };
}
static inline int head_begin(const attn_args & a, const narrow_tile & t) { return t.row0 / (a.n_gqa * a.n_q); }
static inline int head_end(const attn_args & a, const narrow_tile & t) { return (t.row1 - 1) / (a.n_gqa * a.n_q) + 1; }

// Cells that are walked for one head before they are for the next, when a cell's rows of all heads have so many bytes: few,
// for memory is read in order and asked for only so far ahead, but enough to begin a walk for.
static inline int block_cells(int bytes) {
    const int fit = 64*1024 / bytes;
    return fit < 16 ? 16 : fit > 64 ? 64 : fit;
}

// Floats of unpacked rows that stay in the first-level cache beside what else is used.
static constexpr int UNPACK_FLOATS = 4096;

bool narrow_unpacks(const attn_args & a, ggml_type type);

} // namespace rkv
