#include "rkv-attn-ahead.h"

#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

// How far ahead: long enough to cover the latency of memory and the block of V rows that is read out of order, short
// enough not to push rows that wait out of the second-level cache.
static constexpr int AHEAD_BYTES = 32*1024;

read_ahead::read_ahead(const attn_args & a, next_fn next, void * source) : d_k(a.d_k), d_v(a.d_v), next(next), source(source) {
    if (step()) {
        const size_t row = (tile.head1 - tile.head0) * std::max(ggml_row_size(tile.rows.k_type, d_k), ggml_row_size(tile.rows.v_type, d_v));
        advance((int) std::max<size_t>(AHEAD_BYTES / row, 4));
    }
}

// Moves on to the next run of rows: V of this tile, or K of the next.
bool read_ahead::step() {
    cell = 0;
    in_v = !in_v;
    if (!in_v && !next(source, tile)) {
        done = true;
    }
    row_bytes = done ? 0 : in_v ? ggml_row_size(tile.rows.v_type, d_v) : ggml_row_size(tile.rows.k_type, d_k);
    return !done;
}

static RKV_INLINE void prefetch_row(const char * row, size_t nb_head, size_t bytes, int head0, int head1) {
    if (nb_head == bytes) {
        prefetch_bytes(row + head0*nb_head, (head1 - head0)*bytes);
        return;
    }
    for (int h = head0; h < head1; ++h) {
        prefetch_bytes(row + h*nb_head, bytes);
    }
}

void read_ahead::advance(int n) {
    for (int i = 0; i < n && !done; ++i) {
        const tile_rows & r = tile.rows;
        if (in_v) {
            prefetch_row(r.v + cell*r.v_nb_cell, r.v_nb_head, row_bytes, tile.head0, tile.head1);
        } else {
            prefetch_row(r.k + cell*r.k_nb_cell, r.k_nb_head, row_bytes, tile.head0, tile.head1);
        }
        if (++cell == r.n_cells) {
            step();
        }
    }
}

} // namespace rkv
