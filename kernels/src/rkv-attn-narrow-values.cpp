// Second pass of a narrow tile: V rows weighted by the exponentials.

#include "rkv-attn-narrow.h"

#include "rkv-attn-rows.h"
#include "rkv-attn-unpack.h"
#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

static constexpr int N_ROW_MAX = N_VREG == 32 ? 4 : 3;
static constexpr int N_COL_MAX = 4; // vectors

static constexpr int NEXT_CELLS = 4; // how soon a row is read that is brought to the first-level cache

static constexpr int N_UNPACK_MIN = 4; // cells that always fit the buffer

// V rows of n consecutive cells, and their weights.
struct value_rows {
    const char  * v;
    size_t        nb_cell; // bytes
    const float * p;       // [rows, ld_p]
    int           ld_p;
    int           n;
    bool          first;   // o holds nothing yet
    read_ahead  * ahead;   // told of the bytes as they are used
    int           row;     // bytes of a cell's row, to tell
    size_t        next;    // bytes to the row that is read a few cells later; 0: it is in the first-level cache
};

// How a loop over cells asks for as many bytes as it reads, when it reads so many of each.
template <int BYTES> struct asking_cells {
    static constexpr int PAIRS  = BYTES < 2*LINE ? 1 : BYTES / (2*LINE);
    static constexpr int PERIOD = BYTES < 2*LINE ? (2*LINE + BYTES - 1) / BYTES : 1; // cells
};

template <int BYTES> static RKV_INLINE void prefetch_bytes(const char * p) {
    prefetch_next(p);
    if constexpr (BYTES > LINE) {
        prefetch_bytes<BYTES - LINE>(p + LINE);
    }
}

// o[r][0 .. C*LANES) (+)= sum over cells of p[r] * v. WHOLE: the vectors are, else the one vector has `part` elements.
// Inlined: a call for every few cells took a tenth of the time.
template <int R, int C, bool WHOLE, typename T>
static RKV_INLINE void weigh_block(const value_rows & w, read_ahead::lines ahead, int row, int col, int part, float * o, int ld_o) {
    typedef asking_cells<row_reader<T>::bytes(C*LANES)> ask;
    vf acc[R][C];
    o += (size_t) row*ld_o + col;
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        RKV_UNROLL
        for (int c = 0; c < C; ++c) {
            acc[r][c] = w.first ? vf_zero() : vf_load(o + r*ld_o + c*LANES);
        }
    }
    const size_t  ld = w.ld_p, nb = w.nb_cell, next = w.next;
    const float * p  = w.p + row*ld;
    const char  * v  = w.v + row_reader<T>::offset(col);
    const int     in = C*LANES % row_reader<T>::GROUP == 0 ? 0 : col % row_reader<T>::GROUP;
    for (int t = 0; t < w.n; ++t, v += nb, ++p) {
        if (ahead.stride > 0 && t % ask::PERIOD == 0) {
            ahead.ask<ask::PAIRS>();
        }
        prefetch_bytes<row_reader<T>::bytes(C*LANES)>(v + next);
        vf weight[R];
        RKV_UNROLL
        for (int r = 0; r < R; ++r) {
            weight[r] = vf_set1(p[r*ld]);
        }
        const row_reader<T> cell(v);
        auto scale = cell.scale_at(in);
        RKV_UNROLL
        for (int c = 0; c < C; ++c) {
            if (c > 0 && (in + c*LANES) % row_reader<T>::GROUP == 0) {
                scale = cell.scale_at(in + c*LANES);
            }
            const vf x = WHOLE ? cell.load(in + c*LANES, scale) : cell.load_part(in, part);
            RKV_UNROLL
            for (int r = 0; r < R; ++r) {
                acc[r][c] = vf_fma(x, weight[r], acc[r][c]);
            }
        }
    }
    RKV_FORGET(o);
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        RKV_UNROLL
        for (int c = 0; c < C; ++c) {
            vf_store(o + r*ld_o + c*LANES, acc[r][c]);
        }
    }
}

// The first rows of a head ask for what is read later, as many bytes as they read.
template <int R, int C, bool WHOLE, typename T>
static RKV_INLINE void weigh_told(value_rows w, int row, int col, int d_v, float * o, int ld_o) {
    typedef asking_cells<row_reader<T>::bytes(C*LANES)> ask;
    const int end  = std::min(col + C*LANES, d_v);
    const int part = end - col;
    if (row > 0) {
        weigh_block<R, C, WHOLE, T>(w, read_ahead::none(), row, col, part, o, ld_o);
        return;
    }
    for (int left = w.n; left > 0; left -= w.n, w.v += w.n*w.nb_cell, w.p += w.n, w.first = false) {
        w.n = left;
        const read_ahead::lines lines = w.ahead->take(w.n, w.row*end/d_v - w.row*col/d_v, ask::PAIRS, ask::PERIOD);
        weigh_block<R, C, WHOLE, T>(w, lines, row, col, part, o, ld_o);
    }
}

template <int R, typename T>
static void weigh_columns(const value_rows & w, int row, int d_v, float * o, int ld_o) {
    int col = 0;
    for (; col + N_COL_MAX*LANES <= d_v; col += N_COL_MAX*LANES) {
        weigh_told<R, N_COL_MAX, true, T>(w, row, col, d_v, o, ld_o);
    }
    for (; col + 2*LANES <= d_v; col += 2*LANES) {
        weigh_told<R, 2, true, T>(w, row, col, d_v, o, ld_o);
    }
    for (; col + LANES <= d_v; col += LANES) {
        weigh_told<R, 1, true, T>(w, row, col, d_v, o, ld_o);
    }
    if (col < d_v) {
        weigh_told<R, 1, false, T>(w, row, col, d_v, o, ld_o);
    }
}

template <typename T> static void weigh_rows(const value_rows & w, int n, int d_v, float * o, int ld_o) {
    const int n_group = (n + N_ROW_MAX - 1) / N_ROW_MAX;
    for (int g = 0, r = 0; g < n_group; ++g) {
        const int size = (n - r) / (n_group - g);
        switch (size) {
            case 1: weigh_columns<1, T>(w, r, d_v, o, ld_o); break;
            case 2: weigh_columns<2, T>(w, r, d_v, o, ld_o); break;
            case 3: weigh_columns<3, T>(w, r, d_v, o, ld_o); break;
            default: weigh_columns<N_ROW_MAX, T>(w, r, d_v, o, ld_o); break;
        }
        r += size;
    }
}

typedef void (*weigh_fn)(const value_rows &, int, int, float *, int);

static weigh_fn weigh_for(ggml_type type, bool unpacks) {
    if (unpacks) {
        return weigh_rows<float>;
    }
    switch (type) {
        case GGML_TYPE_F16:  return weigh_rows<ggml_fp16_t>;
        case GGML_TYPE_BF16: return weigh_rows<ggml_bf16_t>;
        case GGML_TYPE_Q8_0: return weigh_rows<block_q8_0>;
        default:             return weigh_rows<float>;
    }
}

// The n cells from c on, of one KV head.
static value_rows values_of_head(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead, int h, int c,
                                 int n, int bytes, bool unpacks) {
    const char * v   = t.rows.v + c*t.rows.v_nb_cell + h*t.rows.v_nb_head;
    const int    row = rows_of_head(a, t, h).begin - t.row0;
    value_rows w = { v, t.rows.v_nb_cell, s.scores + (size_t) row*s.ld_scores + c, s.ld_scores, n, false, &ahead, bytes, NEXT_CELLS*t.rows.v_nb_cell };
    if (unpacks) {
        const unpack_fn unpack = unpack_for(t.rows.v_type);
        const int ld = round_up_lanes(a.d_v);
        for (int i = 0; i < n; ++i) {
            unpack(v + i*t.rows.v_nb_cell, s.unpacked + i*ld, a.d_v);
        }
        w.v       = (const char *) s.unpacked;
        w.nb_cell = ld*sizeof(float);
        w.next    = 0;
    }
    return w;
}

void narrow_values(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead,
                   float * o, int ld_o) {
    const bool     unpacks = narrow_unpacks(a, t.rows.v_type);
    const weigh_fn weigh   = weigh_for(t.rows.v_type, unpacks);
    const int h0 = head_begin(a, t);
    const int h1 = head_end(a, t);

    const int row = (int) ggml_row_size(t.rows.v_type, a.d_v);
    const int fit = std::max(N_UNPACK_MIN, UNPACK_FLOATS / round_up_lanes(a.d_v));
    const int block = unpacks ? std::min(block_cells(row*(h1 - h0)), fit) : block_cells(row*(h1 - h0));

    bool first  = true;
    int  walked = 0; // cells that the reading ahead was told of
    for (int i = 0; i < s.n_run; ++i) {
        for (int c = s.runs[i].begin; c < s.runs[i].end; c += block) {
            const int n = std::min(block, s.runs[i].end - c);
            ahead.advance((c - walked)*row*(h1 - h0));
            for (int h = h0; h < h1; ++h) {
                const head_rows r = rows_of_head(a, t, h);
                value_rows w = values_of_head(a, t, s, ahead, h, c, n, row, unpacks);
                w.first = first;
                weigh(w, r.end - r.begin, a.d_v, o + (size_t) (r.begin - t.row0)*ld_o, ld_o);
            }
            first  = false;
            walked = c + n;
        }
    }
    ahead.advance((t.rows.n_cells - walked)*row*(h1 - h0));
}

} // namespace rkv
