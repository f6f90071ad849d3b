#pragma once

// Reads ahead: a thread will read its rows of K and V in a known order, tile after tile, so their lines are asked for
// a fixed distance before they are needed. The hardware's own prefetcher stops at pages and at the jumps between K
// and V.
//
// Lines are asked for in turns from two columns some KiB apart: while one of them begins a page, and the processor does not yet
// fetch on by itself there, it does in the other.

#include "rkv-attn-args.h"
#include "rkv-simd.h"

#include <algorithm>

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

    // The kernel uses `n` more bytes of rows: first all of a tile's K, then all of its V, in any order within either. Told
    // often, of little: a core has few places for lines that are under way, and a burst waits for them.
    RKV_INLINE void advance(int n) {
        owed += n;
        if (owed > 0) {
            ask();
        }
    }

    // Lines that a loop asks for itself, so many pairs in every step or in every few: it keeps what it sums in registers, and calls
    // nothing.
    struct lines {
        const char * at;
        size_t       gap;    // bytes from one column to the other
        size_t       stride; // bytes from a line to the next; 0: nothing is to be asked for

        template <int PAIRS> RKV_INLINE void ask() {
            RKV_UNROLL
            for (int i = 0; i < PAIRS; ++i, at += stride) {
                prefetch_line(at);
                prefetch_line(at + gap);
            }
        }
    };

    static RKV_INLINE lines none() {
        alignas(LINE) static const char nothing[LINE] = {};
        return { nothing, 0, 0 };
    }

    // The lines of the kernel's next `n` steps, which use `bytes` each and of which every `period`th asks for `pairs`; `n` becomes fewer
    // when the columns end before. Where runs are so short that the loop would hardly begin, a few steps' lines are asked for here.
    RKV_INLINE lines take(int & n, int bytes, int pairs, int period) {
        if (owed <= -2*BURST) { // a loop can only ask for whole pairs, and was ahead of what it used
            owed += n*bytes;
            return none();
        }
        if (done || (at == end && !next_columns())) {
            return none();
        }
        const int whole = gap == 0 ? 0 : (int) (end - at) / (pairs*LINE) * period;
        const int few   = std::min(n, std::max(BURST / std::max(bytes, 1), 1));
        if (whole < few) {
            n = few;
            advance(n*bytes);
            return none();
        }
        n = std::min(n, whole);
        const lines taken = { at, gap, LINE };
        const int   asked = (n + period - 1) / period * pairs;
        at += asked*LINE;
        advance(n*bytes - asked*2*LINE);
        return taken;
    }

private:
    static constexpr int BURST = 2048; // bytes that may be asked for at once

    // Runs of consecutive bytes: of K or of V of a tile.
    struct runs {
        const char * base;
        size_t       bytes;              // of a run
        size_t       nb_cell, nb_head;   // from a run to the next
        int          n_cell, n_head;     // runs
    };

    const char * at     = nullptr; // in the first column
    const char * end    = nullptr; // of the first column
    size_t       gap    = 0;       // bytes from there to the second one; 0: there is none
    const char * rest   = nullptr; // of the run, behind both
    int          n_rest = 0;       // lines
    int          n_cut  = 0;       // lines of two columns
    int          owed   = 0;       // bytes that lines are to be asked for

    int        d_k, d_v;
    next_fn    next;
    void     * source;
    ahead_tile tile = {};
    runs       part = {};
    int        cell = 0, head = 0; // the next run
    bool       in_v = true;
    bool       done = false;

    void ask();
    bool next_columns();
    bool next_run();
    bool next_part();
};

} // namespace rkv
