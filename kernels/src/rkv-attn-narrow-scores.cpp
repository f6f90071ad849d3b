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

// How the walk over d asks for as many bytes of four rows as it reads, or a little less.
template <typename T> struct asking_rows {
    static constexpr int BYTES  = N_CELL*row_reader<T>::bytes(row_reader<T>::GROUP);
    static constexpr int PAIRS  = BYTES < 2*LINE ? 1 : BYTES / (2*LINE);
    static constexpr int PERIOD = BYTES < 2*LINE ? 2*LINE / BYTES : 1; // groups of elements

    static int pairs(int d) { return (std::max(d / row_reader<T>::GROUP, 1) + PERIOD - 1) / PERIOD * PAIRS; }
};

// K rows of n consecutive cells.
struct key_rows {
    const char * k;
    size_t       nb_cell; // bytes
    int          n;
};

// s[r*ld + c] = k[c] . q[r]. Each dot is one vector accumulator over d and one tree of additions, whatever R is. D: d, when
// it is known to the compiler, else 0. The rows after these four are read next.
template <int R, int D, typename T>
static RKV_INLINE void dot_block(const char * k, size_t nb_cell, const float * q, int ld_q, int d_any, float * s, int ld,
                                 read_ahead::lines & ahead) {
    constexpr int GROUP = row_reader<T>::GROUP;
    const int d = D ? D : d_any;
    const row_reader<T> cell[N_CELL] = {
        row_reader<T>(k), row_reader<T>(k + nb_cell), row_reader<T>(k + 2*nb_cell), row_reader<T>(k + 3*nb_cell),
    };
    const size_t next = N_CELL*nb_cell;
    vf acc[R][N_CELL];
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        RKV_UNROLL
        for (int c = 0; c < N_CELL; ++c) {
            acc[r][c] = vf_zero();
        }
    }
    int i = 0;
    RKV_UNROLL_FEW
    for (; i + GROUP <= d; i += GROUP) {
        if (i / GROUP % asking_rows<T>::PERIOD == 0) {
            ahead.ask<asking_rows<T>::PAIRS>();
        }
        if (row_reader<T>::offset(i) % LINE < row_reader<T>::offset(GROUP)) { // a line begins
            RKV_UNROLL
            for (int c = 0; c < N_CELL; ++c) {
                prefetch_next(cell[c].at(i) + next);
            }
        }
        const auto s0 = cell[0].scale_at(i), s1 = cell[1].scale_at(i), s2 = cell[2].scale_at(i), s3 = cell[3].scale_at(i);
        RKV_UNROLL
        for (int j = i; j < i + GROUP; j += LANES) {
            const vf x0 = cell[0].load(j, s0), x1 = cell[1].load(j, s1), x2 = cell[2].load(j, s2), x3 = cell[3].load(j, s3);
            RKV_UNROLL
            for (int r = 0; r < R; ++r) {
                const vf y = vf_load(q + r*ld_q + j);
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
            const vf y = vf_load_part(q + r*ld_q + i, d - i);
            RKV_UNROLL
            for (int c = 0; c < N_CELL; ++c) {
                acc[r][c] = vf_fma(cell[c].load_part(i, d - i), y, acc[r][c]);
            }
        }
    }
    vf_sums<R>(s, ld, acc);
}

template <int R, int D, typename T>
static void dot_cells(const key_rows & w, read_ahead::lines ahead, const float * q, int d, float * s, int ld) {
    const int    ld_q = round_up_lanes(D ? D : d);
    const size_t nb   = w.nb_cell;
    const char * k    = w.k;
    int c = 0;
    for (; c + N_CELL <= w.n; c += N_CELL, k += N_CELL*nb) {
        dot_block<R, D, T>(k, nb, q, ld_q, d, s + c, ld, ahead);
    }
    // The last few one by one: a dot and three copies, which the next one overwrites.
    for (; c < w.n; ++c, k += nb) {
        dot_block<R, D, T>(k, 0, q, ld_q, d, s + c, ld, ahead);
    }
}

template <int R, typename T>
static void dot_sized(const key_rows & w, read_ahead::lines ahead, const float * q, int d, float * s, int ld) {
    switch (d) {
        case 64:  dot_cells<R, 64, T>(w, ahead, q, d, s, ld); break;
        case 128: dot_cells<R, 128, T>(w, ahead, q, d, s, ld); break;
        default:  dot_cells<R, 0, T>(w, ahead, q, d, s, ld); break;
    }
}

// The n query rows of one KV head, in groups of even size; the first asks for what is read later.
template <typename T>
static void dot_rows(const key_rows & w, read_ahead::lines ahead, const float * q, int n, int d, float * s, int ld) {
    const int n_group = (n + N_ROW_MAX - 1) / N_ROW_MAX;
    for (int g = 0, r = 0; g < n_group; ++g, ahead = read_ahead::none()) {
        const int size = (n - r) / (n_group - g);
        const float * in  = q + (size_t) r*round_up_lanes(d);
        float       * out = s + (size_t) r*ld;
        switch (size) {
            case 1:  dot_sized<1, T>(w, ahead, in, d, out, ld); break;
            case 2:  dot_sized<2, T>(w, ahead, in, d, out, ld); break;
            case 3:  dot_sized<3, T>(w, ahead, in, d, out, ld); break;
            default: dot_sized<N_ROW_MAX, T>(w, ahead, in, d, out, ld); break;
        }
        r += size;
    }
}

// Scores of cells [c, c + w.n) of head h.
template <typename T>
static void scores_of_rows(const attn_args & a, const narrow_tile & t, narrow_scratch & s, int h, int c, const key_rows & w,
                           read_ahead::lines ahead) {
    const head_rows r = rows_of_head(a, t, h);
    dot_rows<T>(w, ahead, s.queries + (size_t) (r.begin - t.row0)*round_up_lanes(a.d_k), r.end - r.begin, a.d_k,
                s.scores + (size_t) (r.begin - t.row0)*s.ld_scores + c, s.ld_scores);
}

template <typename T>
static void scores_as_they_lie(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead, int h, int c,
                               int n, int row) {
    const char * first = t.rows.k + h*t.rows.k_nb_head;
    for (const int end = c + n; c < end;) {
        int groups = (end - c + N_CELL - 1) / N_CELL;
        const read_ahead::lines lines = ahead.take(groups, N_CELL*row, asking_rows<T>::pairs(a.d_k), 1);
        const int some = std::min(groups*N_CELL, end - c);
        scores_of_rows<T>(a, t, s, h, c, { first + c*t.rows.k_nb_cell, t.rows.k_nb_cell, some }, lines);
        c += some;
    }
}

#if defined(RKV_Q8_DOTS)

// Rows that are fewer than are scored at once, with others behind them that are scored for nothing: a copy, for the memory behind
// them may not be the cache's.
static const char * copy_rows(const char * k, size_t nb_cell, int n, int row, char * to) {
    for (int i = 0; i < n; ++i) {
        memcpy(to + i*row, k + i*nb_cell, row);
    }
    memset(to + n*row, 0, (Q8_CELLS - n)*row);
    return to;
}

static void scores_in_bytes(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead, int h, int c,
                            int n, int row) {
    const head_rows r = rows_of_head(a, t, h);
    const char * first = t.rows.k + h*t.rows.k_nb_head;
    float      * out   = s.scores + (size_t) (r.begin - t.row0)*s.ld_scores;
    q8_rows w = { first, t.rows.k_nb_cell, a.d_k / Q8_BLOCK, s.quants + (r.begin - t.row0), r.end - r.begin, t.row1 - t.row0 };
    for (const int end = c + n; c < end;) {
        int groups = (end - c + Q8_CELLS - 1) / Q8_CELLS;
        read_ahead::lines lines = ahead.take(groups, Q8_CELLS*row, w.n_block*Q8_PAIRS, 1);
        for (; groups > 0; --groups, c += Q8_CELLS) {
            w.k = first + c*t.rows.k_nb_cell;
            if (end - c < Q8_CELLS) {
                w.k       = copy_rows(w.k, w.nb_cell, end - c, row, (char *) s.unpacked);
                w.nb_cell = row;
            }
            q8_scores(w, lines, out + c, s.ld_scores);
        }
        ahead.advance(std::min(end - c, 0)*row); // told of rows that are not there
    }
}

#endif

static void scores_unpacked(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead, int h, int c,
                            int n, int row) {
    const unpack_fn unpack = unpack_for(t.rows.k_type);
    const int ld = round_up_lanes(a.d_k);
    for (const int end = c + n; c < end; c += N_CELL) {
        const int some = std::min(N_CELL, end - c);
        ahead.advance(some*row);
        for (int i = 0; i < some; ++i) {
            unpack(t.rows.k + (c + i)*t.rows.k_nb_cell + h*t.rows.k_nb_head, s.unpacked + i*ld, a.d_k);
        }
        scores_of_rows<float>(a, t, s, h, c, { (const char *) s.unpacked, ld*sizeof(float), some }, read_ahead::none());
    }
}

typedef void (*head_fn)(const attn_args &, const narrow_tile &, narrow_scratch &, read_ahead &, int, int, int, int);

static head_fn head_for(const attn_args & a, ggml_type type) {
#if defined(RKV_Q8_DOTS)
    if (type == GGML_TYPE_Q8_0) {
        return scores_in_bytes;
    }
#endif
    if (narrow_unpacks(a, type)) {
        return scores_unpacked;
    }
    switch (type) {
        case GGML_TYPE_F16:  return scores_as_they_lie<ggml_fp16_t>;
        case GGML_TYPE_BF16: return scores_as_they_lie<ggml_bf16_t>;
        case GGML_TYPE_Q8_0: return scores_as_they_lie<block_q8_0>;
        default:             return scores_as_they_lie<float>;
    }
}

// Cells outside of the live ones keep what the buffer held; the mask overwrites it.
void narrow_scores(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead) {
    const head_fn scores = head_for(a, t.rows.k_type);
    const int row   = (int) ggml_row_size(t.rows.k_type, a.d_k);
    const int h0    = head_begin(a, t);
    const int h1    = head_end(a, t);
    const int step  = Q8_DOTS && t.rows.k_type == GGML_TYPE_Q8_0 ? Q8_CELLS : N_CELL;
    const int begin = t.mask.begin / step * step;
    const int end   = std::min((t.mask.end + step - 1) / step * step, t.rows.n_cells);
    const int block = (block_cells(row*(h1 - h0)) + step - 1) / step * step;
    ahead.advance(begin*row*(h1 - h0));
    for (int c = begin; c < end; c += block) {
        for (int h = h0; h < h1; ++h) {
            scores(a, t, s, ahead, h, c, std::min(block, end - c), row);
        }
    }
    ahead.advance((t.rows.n_cells - end)*row*(h1 - h0));
}

} // namespace rkv
