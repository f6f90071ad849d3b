#include "rkv-attn-ahead.h"

#include <limits.h>

namespace rkv {

// How far ahead: long enough to cover the latency of memory, the columns, and the block of V rows that is read out of
// order; short enough not to push rows that wait out of the second-level cache.
static constexpr int AHEAD_BYTES = 64*1024;

// Lines of two columns: more brings little, and asks for the second one's so much earlier.
static constexpr int COLUMNS_LINES = 256;

read_ahead::read_ahead(const attn_args & a, next_fn next, void * source) : d_k(a.d_k), d_v(a.d_v), next(next), source(source) {
    advance(AHEAD_BYTES);
}

// Moves on to V of this tile, or K of the next.
bool read_ahead::next_part() {
    if (in_v && !next(source, tile)) {
        return false;
    }
    in_v = !in_v;
    const tile_rows & r = tile.rows;
    part = in_v ? runs{ r.v, ggml_row_size(r.v_type, d_v), r.v_nb_cell, r.v_nb_head, r.n_cells, tile.head1 - tile.head0 }
                : runs{ r.k, ggml_row_size(r.k_type, d_k), r.k_nb_cell, r.k_nb_head, r.n_cells, tile.head1 - tile.head0 };
    part.base += tile.head0*part.nb_head;
    if (part.nb_head == part.bytes) {
        part.bytes *= part.n_head;
        part.n_head = 1;
        if (part.nb_cell == part.bytes) {
            part.bytes *= part.n_cell;
            part.n_cell = 1;
        }
    }
    cell = 0;
    head = 0;
    return true;
}

// A run has so many more bytes in lines than rows have, and nothing is owed for them.
bool read_ahead::next_run() {
    if (cell == part.n_cell && !next_part()) {
        return false;
    }
    const char * begin = part.base + cell*part.nb_cell + head*part.nb_head;
    const int    lead  = (int) ((uintptr_t) begin % LINE);
    rest   = begin - lead;
    n_rest = (lead + (int) part.bytes + LINE - 1) / LINE;
    owed  += n_rest*LINE - (int) part.bytes;
    const int n = std::max(1, (n_rest + COLUMNS_LINES/2) / COLUMNS_LINES);
    n_cut = (n_rest + n - 1) / n;
    n_cut += n_cut % 2;
    if (++head == part.n_head) {
        head = 0;
        ++cell;
    }
    return true;
}

// False when all was asked for. A line that is left over at the end of a run is a column of its own.
bool read_ahead::next_columns() {
    if (n_rest == 0 && !next_run()) {
        done = true;
        owed = INT_MIN / 2; // nothing is ever owed again
        return false;
    }
    const int n    = std::min(n_cut, n_rest);
    const int half = n > 1 ? n / 2 : 1;
    at      = rest;
    end     = rest + half*LINE;
    gap     = n > 1 ? (size_t) half*LINE : 0;
    rest   += (n > 1 ? 2*half : 1)*LINE;
    n_rest -= n > 1 ? 2*half : 1;
    return true;
}

void read_ahead::ask() {
    while (owed > 0) {
        if (at == end && !next_columns()) {
            return;
        }
        const int each = gap ? 2 : 1;
        const int n    = std::min((owed + each*LINE - 1) / (each*LINE), (int) (end - at) / LINE);
        for (int i = 0; i < n; ++i, at += LINE) {
            prefetch_line(at);
            if (gap) {
                prefetch_line(at + gap);
            }
        }
        owed -= n*each*LINE;
    }
}

} // namespace rkv
