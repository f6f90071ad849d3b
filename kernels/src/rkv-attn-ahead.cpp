#include "rkv-attn-ahead.h"

#include <limits.h>

namespace rkv {

// How far ahead: long enough to cover the latency of memory and the block of V rows that is read out of order, short
// enough not to push rows that wait out of the second-level cache.
static constexpr int AHEAD_BYTES = 64*1024;

read_ahead::read_ahead(const attn_args & a, next_fn next, void * source) : d_k(a.d_k), d_v(a.d_v), next(next), source(source) {
    advance(AHEAD_BYTES);
}

// Moves on to V of this tile, or K of the next.
bool read_ahead::step() {
    in_v = !in_v;
    if (!in_v && !next(source, tile)) {
        return false;
    }
    const tile_rows & r = tile.rows;
    now = in_v ? runs{ r.v, ggml_row_size(r.v_type, d_v), r.v_nb_cell, r.v_nb_head, r.n_cells, tile.head1 - tile.head0 }
               : runs{ r.k, ggml_row_size(r.k_type, d_k), r.k_nb_cell, r.k_nb_head, r.n_cells, tile.head1 - tile.head0 };
    now.base += tile.head0*now.nb_head;
    if (now.nb_head == now.bytes) {
        now.bytes *= now.n_head;
        now.n_head = 1;
        if (now.nb_cell == now.bytes) {
            now.bytes *= now.n_cell;
            now.n_cell = 1;
        }
    }
    cell = 0;
    head = 0;
    return true;
}

void read_ahead::next_runs() {
    while (owed > 0) {
        owed += (int) (at - end) + lead;
        if (cell == now.n_cell && !step()) {
            done = true;
            at   = end;
            lead = 0;
            owed = INT_MIN / 2; // nothing is ever owed again
            return;
        }
        const char * begin = now.base + cell*now.nb_cell + head*now.nb_head;
        lead = (int) ((uintptr_t) begin % LINE);
        at   = begin - lead;
        end  = begin + now.bytes;
        if (++head == now.n_head) {
            head = 0;
            ++cell;
        }
        ask(std::min(owed + LINE - 1, (int) (end - at) + LINE - 1) / LINE);
    }
}

} // namespace rkv
