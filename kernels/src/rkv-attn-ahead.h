#pragma once

// Reads ahead: a thread will read its rows of K and V in a known order, tile after tile, so their lines are asked for
// a fixed distance before they are needed. The hardware's own prefetcher stops at pages and at the jumps between K
// and V.

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
            ask(std::min(owed + LINE - 1, (int) (end - at) + LINE - 1) / LINE);
        }
        if (owed > 0) {
            next_runs();
        }
    }

    // Lines that a loop asks for itself, so many in every step: it keeps what it sums in registers, and calls nothing.
    struct lines {
        const char * at;
        int          per_step;

        RKV_INLINE void ask(int n) {
            for (int i = 0; i < n; ++i, at += LINE) {
                prefetch_line(at);
            }
        }
        RKV_INLINE void ask_step() { ask(per_step); }
    };

    // The lines of the kernel's next `n` steps, of `bytes` each; `n` becomes fewer when the run ends before. Where runs are so short that
    // the loop would hardly begin, a few steps' lines are asked for here.
    RKV_INLINE lines take(int & n, int bytes) {
        if (done || bytes == 0) {
            return { nullptr, 0 };
        }
        const int whole = (int) (end - at) / bytes;
        const int few   = std::min(n, std::max(BURST / bytes, 1));
        if (whole < few) {
            n = few;
            advance(n*bytes);
            return { nullptr, 0 };
        }
        n = std::min(n, whole);
        const int per_step = bytes / LINE;
        advance(n*(bytes - per_step*LINE));
        const lines taken = { at, per_step };
        at += n*per_step*LINE;
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

    const char * at  = nullptr;
    const char * end = nullptr; // of the run
    int          owed = 0;      // bytes that lines are to be asked for
    int          lead = 0;      // bytes of the run's first line that lie before it

    int        d_k, d_v;
    next_fn    next;
    void     * source;
    ahead_tile tile = {};
    runs       now  = {};
    int        cell = 0, head = 0; // the next run
    bool       in_v = true;
    bool       done = false;

    RKV_INLINE void ask(int n) {
        const char * p = at;
        for (int i = 0; i < n; ++i) {
            prefetch_line(p + i*LINE);
        }
        at   += n*LINE;
        owed -= n*LINE;
    }
    void next_runs();
    bool step();
};

} // namespace rkv
