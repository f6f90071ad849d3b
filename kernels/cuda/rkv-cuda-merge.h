#pragma once

// Merging partials of tiles, as each thread of a block does it: everything but the barriers and what lanes tell each other.

#include "rkv-hd.h"

#include <math.h>
#include <stdint.h>

namespace rkv {

constexpr int MERGE_THREADS   = 256;
constexpr int MERGE_TILES_MAX = 4096; // whose weights fit into shared memory

// Partials of consecutive tiles of one stream, merged in ascending order into what was merged before. A row is a (head, query).
//
// Groups of threads take runs of tiles, and the groups' sums are added in order. The runs follow from `n_tile`, which counts tiles whether
// or not somebody had to compute them: so the sum is the same for every placement.
struct merge_tiles {
    const float * sums;    // [n_made, rows, 2]
    const float * o;       // [n_made, rows, d_v]
    float       * state;   // [rows, 2]: maximum and sum so far; the sum of V lies in dst
    float       * dst;     // of the stream
    const float * sinks;   // [n_head], or NULL
    int64_t dst_nb_head, dst_nb_query; // bytes
    int     n_tile, n_made;
    int     n_rows, n_q, d_v;
    int     drop;          // fault: tile of these that is left out; -1: none
    bool    swap;          // fault: the second and the third are merged in the wrong order
    bool    first, last;   // nothing was merged before; the row ends

    RKV_HD float * row(int r) const { return (float *) ((char *) dst + r/n_q*dst_nb_head + r%n_q*dst_nb_query); }
    RKV_HD bool    has(int t, int r) const { return t < n_made && t != drop && sums[(int64_t(t)*n_rows + r)*2 + 1] != 0.0f; }
    RKV_HD float   max_of(int t, int r) const { return sums[(int64_t(t)*n_rows + r)*2]; }
    RKV_HD float   sum_of(int t, int r) const { return sums[(int64_t(t)*n_rows + r)*2 + 1]; }
    RKV_HD int     tile_at(int i) const { return swap && n_tile > 2 && (i == 1 || i == 2) ? 3 - i : i; }
};

// A thread adds four channels, over a run of tiles.
struct merge_share {
    int  d0;     // first channel
    int  group;
    int  n_group;
    bool idle;
};

RKV_HD merge_share merge_share_of(int d_v, int tid) {
    const int lanes = d_v/4;
    const int n     = MERGE_THREADS/lanes;
    return { tid%lanes*4, tid/lanes, n, tid >= n*lanes };
}

// The largest maximum of the tiles that thread `tid` looks at.
RKV_HD float merge_max(const merge_tiles & a, int r, int tid) {
    float m = -INFINITY;
    for (int t = tid; t < a.n_made; t += MERGE_THREADS) {
        if (a.has(t, r)) {
            m = fmaxf(m, a.max_of(t, r));
        }
    }
    return m;
}

RKV_HD void merge_weights(const merge_tiles & a, int r, float max, float * weights, int tid) {
    for (int t = tid; t < a.n_made; t += MERGE_THREADS) {
        weights[t] = a.has(t, r) ? expf(a.max_of(t, r) - max) : 0.0f;
    }
}

// x: four channels and the sum.
RKV_HD void merge_run(const merge_tiles & a, int r, const merge_share & share, const float * weights, float * x) {
    const int from = int(int64_t(a.n_tile)*share.group/share.n_group);
    const int to   = int(int64_t(a.n_tile)*(share.group + 1)/share.n_group);
    for (int j = 0; j < 5; ++j) {
        x[j] = 0.0f;
    }
    for (int i = from; i < to; ++i) {
        const int t = a.tile_at(i);
        if (t >= a.n_made) {
            continue;
        }
        const float w = weights[t];
        if (w != 0.0f) {
            const float * o = a.o + (int64_t(t)*a.n_rows + r)*a.d_v + share.d0;
            RKV_UNROLL
            for (int j = 0; j < 4; ++j) {
                x[j] += w*o[j];
            }
            x[4] += w*a.sum_of(t, r);
        }
    }
}

// The groups' sums, [n_group, d_v + 1] in `runs`, into channel `d` of the row; d == d_v: into the sum.
RKV_HD float merge_groups(const merge_tiles & a, const float * runs, int n_group, float before, float weight_before, int d) {
    float x = before*weight_before;
    for (int g = 0; g < n_group; ++g) {
        x += runs[g*(a.d_v + 1) + d];
    }
    return x;
}

// What the row is multiplied with when it ends: the sink is counted, and the sum divided by. A row that saw nothing is zero.
RKV_HD float merge_end(const merge_tiles & a, int r, float max, float sum) {
    float weight = 1.0f;
    if (a.sinks) {
        const float sink = a.sinks[r/a.n_q];
        if (sink > max) {
            weight = expf(max - sink);
            sum    = sum*weight + 1.0f;
        } else {
            sum += expf(sink - max);
        }
    }
    return sum == 0.0f ? 0.0f : weight/sum;
}

} // namespace rkv
