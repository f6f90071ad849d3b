#pragma once

// Attention over tiles, as each thread of a block does it: everything but the barriers and what lanes tell each other. So that a test can run
// the same code on the host, thread by thread.
//
// A block computes one partial (M, S, O) for one tile, one KV head and up to R of its query rows. It walks the tile in chunks of
// CHUNK cells: scores of the chunk into shared memory, its softmax against the maximum so far, then the sum of V. Nothing depends on
// where the tile's rows lie, on the other tiles, or on how many there are.

#include "rkv-cuda-numbers.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

namespace rkv {

constexpr int ATTN_THREADS = 128;
constexpr int ATTN_CHUNK   = 128; // cells
constexpr int ATTN_VEC     = 8;   // channels that a thread reads at once
constexpr int ATTN_LANES   = 8;   // threads that share a row of K
constexpr int ATTN_D_MAX   = 1024;

// Consecutive tiles of one stream, all in one place. Pointers are of the stream; strides in bytes.
struct attn_tiles {
    const char * q;         // of query 0, head 0
    const char * k;         // of the first cell of the first tile, head 0
    const char * v;
    const char * mask;      // of cell 0 of the cache, query 0, mask head 0; or NULL
    float      * sums;      // [tiles, rows, 2]: M and S
    float      * o;         // [tiles, rows, d_v]

    int64_t q_nb_query, q_nb_head;
    int64_t k_nb_cell, k_nb_head;
    int64_t v_nb_cell, v_nb_head;
    int64_t mask_nb_query, mask_nb_head;

    int64_t cell0;          // of the cache: first cell of the first tile
    int64_t n_kv;           // cells of the cache: the last tile may be a short one
    int     tile;           // cells of a full tile
    int     d_k, d_v;
    int     n_q, n_gqa, n_head;
    int     mask_heads;
    int     type_k, type_v;

    float scale;            // already divided by the cap when there is one
    float softcap;          // 0: none
    float max_bias;         // ALiBi; 0: none

    RKV_HD int n_rows() const { return n_head*n_q; }
    RKV_HD int rows_of_kv_head() const { return n_gqa*n_q; }
    RKV_HD int cells_of(int t) const {
        const int64_t left = n_kv - cell0 - int64_t(t)*tile;
        return left < tile ? int(left) : tile;
    }

    // Row `r` of a KV head.
    RKV_HD int head_of(int kv_head, int r) const { return kv_head*n_gqa + r/n_q; }
    RKV_HD int query_of(int r) const { return r%n_q; }
    RKV_HD int row_of(int kv_head, int r) const { return head_of(kv_head, r)*n_q + query_of(r); }
};

// Weight of the mask for a query head: two geometric series, the heads past the last power of two take the odd steps of one twice as fine.
RKV_HD float alibi_slope(float max_bias, int n_head, int head) {
    if (max_bias <= 0.0f) {
        return 1.0f;
    }
    int n_pow2 = 1;
    while (2*n_pow2 <= n_head) {
        n_pow2 *= 2;
    }
    const float bias = head < n_pow2 ? max_bias : max_bias/2.0f;
    const int   step = head < n_pow2 ? head + 1 : 2*(head - n_pow2) + 1;
    return powf(powf(2.0f, -bias/float(n_pow2)), float(step));
}

//
// a block
//

// Shared memory of a block, in floats.
struct attn_shared {
    float * q;     // [R, 2, d_k/8, 4]: the first and the second four channels of each eight apart, so that lanes read next to each other
    float * s;     // [R, CHUNK] scores, then weights
    float * red;   // [THREADS, 8]
    float * m;     // [R] maximum so far
    float * sum;   // [R]
    float * shrink; // [R] what sums made before this chunk are multiplied with
    int   * live;  // [CHUNK] whether any row sees the cell

    RKV_HD static size_t floats(int rows, int d_k) {
        return size_t(rows)*d_k + size_t(rows)*ATTN_CHUNK + ATTN_THREADS*ATTN_VEC + 3*rows + ATTN_CHUNK;
    }
    RKV_HD static attn_shared carve(float * p, int rows, int d_k) {
        attn_shared sh;
        sh.q      = p;
        sh.s      = sh.q + size_t(rows)*d_k;
        sh.red    = sh.s + size_t(rows)*ATTN_CHUNK;
        sh.m      = sh.red + ATTN_THREADS*ATTN_VEC;
        sh.sum    = sh.m + rows;
        sh.shrink = sh.sum + rows;
        sh.live   = (int *) (sh.shrink + rows);
        return sh;
    }
};

// Which part of the work a block has.
struct attn_block {
    int t;       // tile of the launch
    int kv_head;
    int row0;    // first row of the KV head
    int n_cells; // of the tile
};

RKV_HD attn_block attn_block_of(const attn_tiles & a, int t, int kv_head, int group, int rows) {
    return { t, kv_head, group*rows, a.cells_of(t) };
}

RKV_HD float * q_at(const attn_shared & sh, int d_k, int r, int half, int vec) {
    return sh.q + ((size_t(r)*2 + half)*(d_k/ATTN_VEC) + vec)*4;
}

// The query rows, already scaled; and nothing seen yet.
template <int R> RKV_HD void attn_load_q(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int tid) {
    if (tid < R) {
        sh.m[tid]   = -INFINITY;
        sh.sum[tid] = 0.0f;
    }
    for (int i = tid; i < R*a.d_k; i += ATTN_THREADS) {
        const int r = i/a.d_k;
        const int d = i%a.d_k;
        float     x = 0.0f;
        if (b.row0 + r < a.rows_of_kv_head()) {
            const int row = b.row0 + r;
            x = ((const float *) (a.q + a.query_of(row)*a.q_nb_query + a.head_of(b.kv_head, row)*a.q_nb_head))[d]*a.scale;
        }
        q_at(sh, a.d_k, r, d%ATTN_VEC/4, d/ATTN_VEC)[d%4] = x;
    }
}

// What the mask adds to the scores of cells [c0, c0 + CHUNK) of the tile; -inf: not seen.
template <int R> RKV_HD void attn_load_mask(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int c0, int tid) {
    for (int i = tid; i < R*ATTN_CHUNK; i += ATTN_THREADS) {
        const int row = b.row0 + i/ATTN_CHUNK;
        const int c   = c0 + i%ATTN_CHUNK;
        float     x   = -INFINITY;
        if (row < a.rows_of_kv_head() && c < b.n_cells) {
            x = 0.0f;
            if (a.mask) {
                const int head = a.head_of(b.kv_head, row);
                const uint16_t * m = (const uint16_t *) (a.mask + a.query_of(row)*a.mask_nb_query + head%a.mask_heads*a.mask_nb_head);
                x = from_half(m[a.cell0 + int64_t(b.t)*a.tile + c]);
                // A mask of minus infinity must stay one, whatever it is weighed with.
                x = x == -INFINITY ? x : x*alibi_slope(a.max_bias, a.n_head, head);
            }
        }
        sh.s[i] = x;
    }
}

// Whether any row sees cell `c` of the chunk. Cells that nobody sees are never read: their rows may be anything.
template <int R> RKV_HD bool attn_note_live(const attn_shared & sh, int c) {
    bool live = false;
    for (int r = 0; r < R; ++r) {
        live = live || sh.s[r*ATTN_CHUNK + c] > -INFINITY;
    }
    sh.live[c] = live;
    return live;
}

// A lane's share of the products of one row of K with each query row.
template <int R, int TYPE> RKV_HD void attn_dot(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int c, int lane, float * acc) {
    const char * row = a.k + (int64_t(b.t)*a.tile + c)*a.k_nb_cell + b.kv_head*a.k_nb_head;
    for (int vec = lane; vec < a.d_k/ATTN_VEC; vec += ATTN_LANES) {
        float x[ATTN_VEC];
        load8<TYPE>(a.type_k, row, vec*ATTN_VEC, x);
        RKV_UNROLL
        for (int r = 0; r < R; ++r) {
            const float * q0 = q_at(sh, a.d_k, r, 0, vec);
            const float * q1 = q_at(sh, a.d_k, r, 1, vec);
            RKV_UNROLL
            for (int j = 0; j < 4; ++j) {
                acc[r] += x[j]*q0[j];
            }
            RKV_UNROLL
            for (int j = 0; j < 4; ++j) {
                acc[r] += x[4 + j]*q1[j];
            }
        }
    }
}

// Not tanhf, which fast arithmetic makes good to three digits.
RKV_HD float attn_tanh(float x) {
    return 1.0f - 2.0f/(expf(2.0f*x) + 1.0f);
}

// The score of a row and a cell of the chunk, from the sum of its lanes' products.
RKV_HD void attn_put_score(const attn_tiles & a, const attn_shared & sh, int r, int c, float dot) {
    float & s = sh.s[r*ATTN_CHUNK + c];
    if (s > -INFINITY) {
        s += a.softcap == 0.0f ? dot : a.softcap*attn_tanh(dot);
    }
}

// The maximum so far of a row, with the chunk's.
RKV_HD void attn_put_max(const attn_shared & sh, int r, float max_of_chunk) {
    const float before = sh.m[r];
    const float now    = max_of_chunk > before ? max_of_chunk : before;
    sh.shrink[r] = before == now ? 1.0f : expf(before - now);
    sh.m[r]      = now;
}

RKV_HD float attn_put_weight(const attn_shared & sh, int r, int c) {
    float & s = sh.s[r*ATTN_CHUNK + c];
    s = s > -INFINITY ? expf(s - sh.m[r]) : 0.0f;
    return s;
}

// Threads share the sum of V by cells and by eight channels each.
struct attn_share {
    int vec;   // eighth channels
    int cell0; // first cell
    int step;  // of cells
    bool idle;
};

RKV_HD attn_share attn_share_of(int d_v, int tid) {
    const int n_vec = d_v/ATTN_VEC;
    const int step  = ATTN_THREADS/n_vec;
    return { tid%n_vec, tid/n_vec, step, tid >= step*n_vec };
}

template <int R, int TYPE> RKV_HD void attn_add_v(const attn_tiles & a, const attn_block & b, const attn_shared & sh, const attn_share & share, int c0,
        float (* acc)[ATTN_VEC]) {
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        const float shrink = sh.shrink[r];
        RKV_UNROLL
        for (int j = 0; j < ATTN_VEC; ++j) {
            acc[r][j] *= shrink;
        }
    }
    const int n = b.n_cells - c0 < ATTN_CHUNK ? b.n_cells - c0 : ATTN_CHUNK;
    for (int c = share.cell0; c < n; c += share.step) {
        if (!sh.live[c]) {
            continue;
        }
        float x[ATTN_VEC];
        load8<TYPE>(a.type_v, a.v + (int64_t(b.t)*a.tile + c0 + c)*a.v_nb_cell + b.kv_head*a.v_nb_head, share.vec*ATTN_VEC, x);
        RKV_UNROLL
        for (int r = 0; r < R; ++r) {
            const float w = sh.s[r*ATTN_CHUNK + c];
            RKV_UNROLL
            for (int j = 0; j < ATTN_VEC; ++j) {
                acc[r][j] += w*x[j];
            }
        }
    }
}

// One row's sums of the threads, to be added up by attn_put_o.
RKV_HD void attn_leave(const attn_shared & sh, const attn_share & share, int d_v, const float * acc) {
    if (!share.idle) {
        RKV_UNROLL
        for (int j = 0; j < ATTN_VEC; ++j) {
            sh.red[share.cell0*d_v + share.vec*ATTN_VEC + j] = acc[j];
        }
    }
}

RKV_HD void attn_put_o(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int r, int tid) {
    const int step = ATTN_THREADS/(a.d_v/ATTN_VEC);
    float *   o    = a.o + (int64_t(b.t)*a.n_rows() + a.row_of(b.kv_head, b.row0 + r))*a.d_v;
    for (int d = tid; d < a.d_v; d += ATTN_THREADS) {
        float x = 0.0f;
        for (int g = 0; g < step; ++g) {
            x += sh.red[g*a.d_v + d];
        }
        o[d] = x;
    }
}

RKV_HD void attn_put_sums(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int r) {
    float * at = a.sums + (int64_t(b.t)*a.n_rows() + a.row_of(b.kv_head, b.row0 + r))*2;
    at[0] = sh.m[r];
    at[1] = sh.sum[r];
}

} // namespace rkv
