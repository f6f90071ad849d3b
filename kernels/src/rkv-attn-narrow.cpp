#include "rkv-attn-narrow.h"

#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

// Query rows of a KV head up to which quants are better turned to floats in registers, once for every few rows.
static constexpr int UNPACK_Q8_ROWS = 8;

bool narrow_unpacks(const attn_args & a, ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:  return false;
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16: return a.n_gqa * a.n_q >= UNPACK_ROWS;
        case GGML_TYPE_Q8_0: return a.n_gqa * a.n_q > UNPACK_Q8_ROWS;
        default:             return true;
    }
}

narrow_scratch narrow_scratch::carve(arena & mem, const attn_args & a, int n_rows) {
    const int n_cells = (int) std::min<int64_t>(a.tile, a.n_kv);
    const int four    = 4 * round_up_lanes(std::max(a.d_k, a.d_v));
    const int rows_q8 = Q8_CELLS * (int) ggml_row_size(GGML_TYPE_Q8_0, a.d_k / Q8_BLOCK * Q8_BLOCK) / (int) sizeof(float);

    narrow_scratch s;
    s.ld_scores = (n_cells + 31) / 32 * 32;
    s.scores    = mem.take<float>((size_t) n_rows * s.ld_scores);
    s.queries   = mem.take<float>((size_t) n_rows * round_up_lanes(a.d_k));
    s.quants    = mem.take<q8_query>(Q8_DOTS ? (size_t) n_rows * (a.d_k / Q8_BLOCK) : 0);
    s.slopes    = mem.take<float>(a.n_head);
    s.unpacked  = mem.take<float>(std::max({ four, UNPACK_FLOATS, rows_q8 }));
    s.dead      = mem.take<uint16_t>(n_cells);
    s.runs      = mem.take<cell_run>(n_cells / 2 + 1);
    s.n_run     = 0;
    s.stream    = s.row0 = s.row1 = -1;
    s.has_quants = false;
    return s;
}

// Sets s.dead of the cells [begin, end) that no query sees, over all heads' masks.
static void find_dead(const attn_args & a, const narrow_tile & t, narrow_scratch & s) {
    const int64_t cell0 = a.tile_begin(t.tile);
    for (int c = t.mask.begin; c < t.mask.end; ++c) {
        s.dead[c] = 1;
    }
    for (int plane = 0; plane < a.mask->ne[2]; ++plane) {
        for (int iq = 0; iq < a.n_q; ++iq) {
            const ggml_fp16_t * m = a.mask_row(t.stream, plane, iq) + cell0;
            for (int c = t.mask.begin; c < t.mask.end; ++c) {
                s.dead[c] &= (uint16_t) (m[c] == F16_NEG_INF);
            }
        }
    }
}

// Runs of cells that some query sees. The others may never have been written, and 0*NaN is NaN: they are not
// multiplied.
static void find_runs(const attn_args & a, const narrow_tile & t, narrow_scratch & s) {
    s.n_run = 0;
    if (t.mask.plain) {
        s.runs[s.n_run++] = { 0, t.rows.n_cells };
        return;
    }
    find_dead(a, t, s);
    for (int c = t.mask.begin; c < t.mask.end; ++c) {
        if (s.dead[c]) {
            continue;
        }
        if (s.n_run == 0 || s.runs[s.n_run - 1].end != c) {
            s.runs[s.n_run++] = { c, c };
        }
        s.runs[s.n_run - 1].end = c + 1;
    }
}

// One vector of logits from raw dot products; `m` is the mask there, or NULL.
static inline vf finish_logit(const attn_args & a, vf x, const ggml_fp16_t * m, int n, vf slope) {
    x = vf_logit(x, a.scale, a.softcap);
    if (m) {
        const vf bias = n < LANES ? vf_load_part(m, n) : vf_load(m);
        x = vf_apply_mask(vf_fma(slope, bias, x), bias);
    }
    return x;
}

// In place: raw dot products of one query row become logits, -inf from n on; returns the largest.
static float logits_of_row(const attn_args & a, float * s, int n, int ld, const ggml_fp16_t * m, float slope) {
    const vf w = vf_set1(slope);
    vf top = vf_set1(-INFINITY);
    int c = 0;
    for (; c + LANES <= n; c += LANES) {
        const vf x = finish_logit(a, vf_load(s + c), m ? m + c : nullptr, LANES, w);
        vf_store(s + c, x);
        top = vf_max(x, top);
    }
    if (c < n) {
        vf_store_part(s + c, finish_logit(a, vf_load(s + c), m ? m + c : nullptr, n - c, w), n - c);
    }
    for (int i = n; i < ld; ++i) {
        s[i] = -INFINITY;
    }
    if (c < n) {
        top = vf_max(vf_load(s + c), top);
    }
    return vf_hmax(top);
}

// In place: logits become exponentials of what they are below `max`; returns their sum.
static float exp_row(float * s, int ld, float max) {
    const vf base = vf_set1(max == -INFINITY ? 0.0f : max);
    vf sum = vf_zero();
    for (int c = 0; c < ld; c += LANES) {
        const vf p = vf_exp(vf_sub(vf_load(s + c), base));
        vf_store(s + c, p);
        sum = vf_add(sum, p);
    }
    return vf_hsum(sum);
}

// All rows' maxima first: each waits for its own row only, and the processor goes on with the others meanwhile.
static void softmax_rows(const attn_args & a, const narrow_tile & t, narrow_scratch & s, float * head_sums) {
    const int64_t cell0  = a.tile_begin(t.tile);
    const int     n_rows = t.row1 - t.row0;
    for (int i = 0; i < n_rows; ++i) {
        const int head = (t.row0 + i) / a.n_q;
        const ggml_fp16_t * m = t.mask.plain ? nullptr : a.mask_row(t.stream, head, (t.row0 + i) % a.n_q) + cell0;
        head_sums[2*i] = logits_of_row(a, s.scores + (size_t) i*s.ld_scores, t.rows.n_cells, s.ld_scores, m, s.slopes[head]);
    }
    for (int i = 0; i < n_rows; ++i) {
        head_sums[2*i + 1] = exp_row(s.scores + (size_t) i*s.ld_scores, s.ld_scores, head_sums[2*i]);
    }
}

// The query rows of a tile side by side, unless they are there from the tile before.
static void take_queries(const attn_args & a, const narrow_tile & t, narrow_scratch & s) {
    const int  n    = t.row1 - t.row0;
    const int  ld   = round_up_lanes(a.d_k);
    const bool same = t.stream == s.stream && t.row0 == s.row0 && t.row1 == s.row1;
    if (!same) {
        for (int i = 0; i < n; ++i) {
            const float * q = a.query(t.stream, (t.row0 + i) / a.n_q, (t.row0 + i) % a.n_q);
            memcpy(s.queries + (size_t) i*ld, q, a.d_k*sizeof(float));
        }
    }
#if defined(RKV_Q8_DOTS)
    const bool wanted = t.rows.k_type == GGML_TYPE_Q8_0;
    for (int i = 0; i < n && wanted && !(same && s.has_quants); ++i) {
        q8_query_make(s.queries + (size_t) i*ld, a.d_k / Q8_BLOCK, s.quants + i, n);
    }
    s.has_quants = wanted || (same && s.has_quants);
#endif
    s.stream = t.stream;
    s.row0   = t.row0;
    s.row1   = t.row1;
}

void narrow_partial(const attn_args & a, const narrow_tile & t, narrow_scratch & s, read_ahead & ahead,
                    float * head_sums, float * o, int ld_o) {
    take_queries(a, t, s);
    find_runs(a, t, s);
    narrow_scores(a, t, s, ahead);

    softmax_rows(a, t, s, head_sums);
    narrow_values(a, t, s, ahead, o, ld_o);
}

} // namespace rkv
