// First pass of a narrow tile: dot products of its K rows with the query rows.

#include "rkv-attn-narrow.h"

#include "rkv-attn-rows.h"
#include "rkv-attn-unpack.h"
#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

// Four cells at a time, and as many query rows as leave registers for their 4 x rows accumulators.
static constexpr int N_CELL = 4;
static constexpr int N_ROW_MAX = N_VREG == 32 ? 4 : 3;

// s[r*ld + c] = k[c] . q[r]. Each dot is one vector accumulator over d and one tree of additions, whatever R is.
template <int R, typename T>
static void dot_block(const row_reader<T> * k, const float * const * q, int d, float * s, int ld) {
    constexpr int GROUP = row_reader<T>::GROUP;
    vf acc[R][N_CELL];
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        RKV_UNROLL
        for (int c = 0; c < N_CELL; ++c) {
            acc[r][c] = vf_zero();
        }
    }
    const row_reader<T> k0 = k[0], k1 = k[1], k2 = k[2], k3 = k[3];
    int i = 0;
    for (; i + GROUP <= d; i += GROUP) {
        const auto s0 = k0.scale_at(i), s1 = k1.scale_at(i), s2 = k2.scale_at(i), s3 = k3.scale_at(i);
        RKV_UNROLL
        for (int j = i; j < i + GROUP; j += LANES) {
            const vf x0 = k0.load(j, s0), x1 = k1.load(j, s1), x2 = k2.load(j, s2), x3 = k3.load(j, s3);
            RKV_UNROLL
            for (int r = 0; r < R; ++r) {
                const vf y = vf_load(q[r] + j);
                acc[r][0] = vf_fma(x0, y, acc[r][0]);
                acc[r][1] = vf_fma(x1, y, acc[r][1]);
                acc[r][2] = vf_fma(x2, y, acc[r][2]);
                acc[r][3] = vf_fma(x3, y, acc[r][3]);
            }
        }
    }
    if (i < d) {
        RKV_UNROLL
        for (int r = 0; r < R; ++r) {
            const vf y = vf_load_part(q[r] + i, d - i);
            RKV_UNROLL
            for (int c = 0; c < N_CELL; ++c) {
                acc[r][c] = vf_fma(k[c].load_part(i, d - i), y, acc[r][c]);
            }
        }
    }
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        vf_sum4(s + r*ld, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    }
}

// The n query rows of one KV head, in groups of even size.
template <typename T>
static void dot_rows(const row_reader<T> * k, const float * const * q, int n, int d, float * s, int ld) {
    const int n_group = (n + N_ROW_MAX - 1) / N_ROW_MAX;
    for (int g = 0, r = 0; g < n_group; ++g) {
        const int size = (n - r) / (n_group - g);
        float * out = s + (size_t) r*ld;
        switch (size) {
            case 1: dot_block<1>(k, q + r, d, out, ld); break;
            case 2: dot_block<2>(k, q + r, d, out, ld); break;
            case 3: dot_block<3>(k, q + r, d, out, ld); break;
            default: dot_block<N_ROW_MAX>(k, q + r, d, out, ld); break;
        }
        r += size;
    }
}

// Cells c .. c+3 of a tile; past its end the last cell again, whose dots are computed but never looked at.
static int cell_at(const narrow_tile & t, int c, int i) {
    return std::min(c + i, t.rows.n_cells - 1);
}

template <typename T>
static void scores_of_block(const attn_args & a, const narrow_tile & t, narrow_scratch & s, int c) {
    for (int h = head_begin(a, t); h < head_end(a, t); ++h) {
        const char * k_head = t.rows.k + h*t.rows.k_nb_head;
        const row_reader<T> k[N_CELL] = {
            row_reader<T>(k_head + cell_at(t, c, 0)*t.rows.k_nb_cell), row_reader<T>(k_head + cell_at(t, c, 1)*t.rows.k_nb_cell),
            row_reader<T>(k_head + cell_at(t, c, 2)*t.rows.k_nb_cell), row_reader<T>(k_head + cell_at(t, c, 3)*t.rows.k_nb_cell),
        };
        const head_rows r = rows_of_head(a, t, h);
        dot_rows(k, s.queries + (r.begin - t.row0), r.end - r.begin, a.d_k,
                 s.scores + (size_t) (r.begin - t.row0)*s.ld_scores + c, s.ld_scores);
    }
}

static void scores_of_unpacked_block(const attn_args & a, const narrow_tile & t, narrow_scratch & s, int c) {
    const unpack_fn unpack = unpack_for(t.rows.k_type);
    const int ld = round_up_lanes(a.d_k);
    for (int h = head_begin(a, t); h < head_end(a, t); ++h) {
        for (int i = 0; i < N_CELL; ++i) {
            unpack(t.rows.k + cell_at(t, c, i)*t.rows.k_nb_cell + h*t.rows.k_nb_head, s.unpacked + i*ld, a.d_k);
        }
        const char * first = (const char *) s.unpacked;
        const size_t row   = ld*sizeof(float);
        const row_reader<float> k[N_CELL] = {
            row_reader<float>(first), row_reader<float>(first + row), row_reader<float>(first + 2*row), row_reader<float>(first + 3*row),
        };
        const head_rows r = rows_of_head(a, t, h);
        dot_rows(k, s.queries + (r.begin - t.row0), r.end - r.begin, a.d_k,
                 s.scores + (size_t) (r.begin - t.row0)*s.ld_scores + c, s.ld_scores);
    }
}

typedef void (*block_fn)(const attn_args &, const narrow_tile &, narrow_scratch &, int);

static block_fn block_for(const attn_args & a, ggml_type type) {
    if (narrow_unpacks(a, type)) {
        return scores_of_unpacked_block;
    }
    switch (type) {
        case GGML_TYPE_F16:  return scores_of_block<ggml_fp16_t>;
        case GGML_TYPE_BF16: return scores_of_block<ggml_bf16_t>;
        case GGML_TYPE_Q8_0: return scores_of_block<block_q8_0>;
        default:             return scores_of_block<float>;
    }
}

void narrow_scores(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead) {
    const block_fn block = block_for(a, t.rows.k_type);
    // Cells outside of the live ones keep what the buffer held; the mask overwrites it.
    const int begin = t.mask.begin / N_CELL * N_CELL;
    ahead.advance(begin);
    for (int c = begin; c < t.mask.end; c += N_CELL) {
        ahead.advance(std::min(N_CELL, t.rows.n_cells - c));
        block(a, t, s, c);
    }
    ahead.advance(t.rows.n_cells - std::min((t.mask.end + N_CELL - 1) / N_CELL * N_CELL, t.rows.n_cells));
}

} // namespace rkv
