#pragma once

// Attention over tiles, as each thread of a block does it: everything but the barriers and what lanes tell each other. So that a test can run
// the same code on the host, thread by thread.
//
// A block computes one partial (M, S, O) for one tile, one KV head and up to R of its query rows. It walks the tile in chunks of
// CHUNK cells: scores of the chunk into shared memory, its softmax against the maximum so far, then the sum of V. Nothing depends on
// where the tile's rows lie, on the other tiles, or on how many there are.

#include "rkv-hd.h"

#include "ggml.h"

#if defined(__HIPCC__)
#include <hip/hip_fp16.h>
#elif defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>

namespace rkv {

constexpr int ATTN_THREADS = 128;
constexpr int ATTN_CHUNK   = 128; // cells
constexpr int ATTN_VEC     = 8;   // channels that a thread reads at once
constexpr int ATTN_LANES   = 8;   // threads that share a row of K
constexpr int ATTN_ROWS    = 8;   // query rows of a block, at most
constexpr int ATTN_D_MAX   = 1024;

constexpr int ATTN_ANY_TYPE = -1; // the type is known when the kernel runs

//
// numbers
//

RKV_HD float from_half(uint16_t bits) {
#ifdef RKV_ON_DEVICE
    return __half2float(__ushort_as_half(bits));
#else
    return ggml_fp16_to_fp32(bits);
#endif
}

RKV_HD float from_bf16(uint16_t bits) {
    union { uint32_t u; float f; } x;
    x.u = uint32_t(bits) << 16;
    return x.f;
}

struct alignas(16) words4 {
    uint32_t w[4];
};

// Rows of quantised types are aligned to two bytes.
struct bytes8 {
    uint16_t h[4];

    RKV_HD static bytes8 at(const uint8_t * p) {
        const uint16_t * s = (const uint16_t *) p;
        return { { s[0], s[1], s[2], s[3] } };
    }
    RKV_HD int byte(int i) const { return (h[i/2] >> (8*(i%2))) & 0xff; }
};

RKV_HD uint16_t half_at(const uint8_t * p) {
    return *(const uint16_t *) p;
}

// Channels [i, i + 8) of a row, where i is a multiple of 8.
RKV_HD void load_f32(const char * row, int i, float * x) {
    const words4 * p = (const words4 *) (row + size_t(i)*sizeof(float));
    for (int h = 0; h < 2; ++h) {
        const words4 w = p[h];
        for (int j = 0; j < 4; ++j) {
            union { uint32_t u; float f; } v;
            v.u = w.w[j];
            x[4*h + j] = v.f;
        }
    }
}

RKV_HD void load_f16(const char * row, int i, float * x) {
    const words4 w = *(const words4 *) (row + size_t(i)*2);
    for (int j = 0; j < 8; ++j) {
        x[j] = from_half(uint16_t(w.w[j/2] >> (16*(j%2))));
    }
}

RKV_HD void load_bf16(const char * row, int i, float * x) {
    const words4 w = *(const words4 *) (row + size_t(i)*2);
    for (int j = 0; j < 8; ++j) {
        x[j] = from_bf16(uint16_t(w.w[j/2] >> (16*(j%2))));
    }
}

// Blocks of 32 channels: the first 16 in the low halves of bytes, the others in the high ones.
RKV_HD void load_nibbles(const uint8_t * qs, int j, int * q) {
    const bytes8 b     = bytes8::at(qs + j%16);
    const int    shift = j < 16 ? 0 : 4;
    for (int k = 0; k < 8; ++k) {
        q[k] = (b.byte(k) >> shift) & 0xf;
    }
}

RKV_HD void add_high_bits(const uint8_t * qh, int j, int * q) {
    const uint32_t bits = (uint32_t(half_at(qh)) | uint32_t(half_at(qh + 2)) << 16) >> j;
    for (int k = 0; k < 8; ++k) {
        q[k] |= ((bits >> k) & 1) << 4;
    }
}

RKV_HD void load_q4_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*18;
    int q[8];
    load_nibbles(b + 2, i%32, q);
    const float d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k] - 8)*d;
    }
}

RKV_HD void load_q4_1(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*20;
    int q[8];
    load_nibbles(b + 4, i%32, q);
    const float d = from_half(half_at(b));
    const float m = from_half(half_at(b + 2));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k])*d + m;
    }
}

RKV_HD void load_q5_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*22;
    int q[8];
    load_nibbles(b + 6, i%32, q);
    add_high_bits(b + 2, i%32, q);
    const float d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k] - 16)*d;
    }
}

RKV_HD void load_q5_1(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*24;
    int q[8];
    load_nibbles(b + 8, i%32, q);
    add_high_bits(b + 4, i%32, q);
    const float d = from_half(half_at(b));
    const float m = from_half(half_at(b + 2));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k])*d + m;
    }
}

RKV_HD void load_q8_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*34;
    const bytes8    q = bytes8::at(b + 2 + i%32);
    const float     d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(int8_t(q.byte(k)))*d;
    }
}

// Types that tiles may have.
RKV_HD bool attn_has_type(int type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_1 ||
        type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1 || type == GGML_TYPE_Q8_0;
}

template <int TYPE> RKV_HD void load8(int type, const char * row, int i, float * x) {
    switch (TYPE == ATTN_ANY_TYPE ? type : TYPE) {
        case GGML_TYPE_F32:  load_f32 (row, i, x); break;
        case GGML_TYPE_F16:  load_f16 (row, i, x); break;
        case GGML_TYPE_BF16: load_bf16(row, i, x); break;
        case GGML_TYPE_Q4_0: load_q4_0(row, i, x); break;
        case GGML_TYPE_Q4_1: load_q4_1(row, i, x); break;
        case GGML_TYPE_Q5_0: load_q5_0(row, i, x); break;
        case GGML_TYPE_Q5_1: load_q5_1(row, i, x); break;
        default:             load_q8_0(row, i, x); break;
    }
}

//
// what one launch computes
//

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

//
// merging
//

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

//
// bytes
//

// Rows one behind the other. `word`: bytes that a thread moves at once, a divisor of everything here.
struct pull_rows {
    char       * dst;
    const char * src;
    int64_t      stride; // of src, bytes
    int64_t      width;  // bytes
    int64_t      rows;

    RKV_HD int64_t words(int word) const { return rows*width/word; }
};

template <typename WORD> RKV_HD void pull_word(const pull_rows & a, int64_t i) {
    const int64_t at = i*int64_t(sizeof(WORD));
    *(WORD *) (a.dst + at) = *(const WORD *) (a.src + at/a.width*a.stride + at%a.width);
}

// The widest word that divides addresses and sizes.
RKV_HD int pull_word_bytes(const pull_rows & a) {
    const uint64_t all = uint64_t((uintptr_t) a.dst) | uint64_t((uintptr_t) a.src) | uint64_t(a.width) | (a.rows > 1 ? uint64_t(a.stride) : 0);
    return all%16 == 0 ? 16 : all%4 == 0 ? 4 : all%2 == 0 ? 2 : 1;
}

} // namespace rkv
