#include "rkv-attn-wide.h"

#include "rkv-attn-unpack.h"
#include "rkv-gemm.h"
#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

// Cells that are unpacked at a time: their rows should stay in the second-level cache. A multiple of GEMM_ROWS.
static int cells_at_a_time(const attn_args & a) {
    const int floats = 12*1024;
    const int cells  = floats / round_up_lanes(std::max(a.d_k, a.d_v)) / GEMM_ROWS * GEMM_ROWS;
    return std::min(std::max(cells, GEMM_ROWS), 16*GEMM_ROWS);
}

wide_scratch wide_scratch::carve(arena & mem, const attn_args & a, int n_rows) {
    const int n_cells = (int) std::min<int64_t>(a.tile, a.n_kv);
    const int ld_k    = round_up_lanes(a.d_k);

    wide_scratch s;
    s.ld       = (n_rows + 15) / 16 * 16;
    s.ld_o     = round_up_lanes(a.d_v);
    s.queries  = mem.take<float>((size_t) a.d_k * s.ld);
    s.slopes   = mem.take<float>(s.ld);
    s.scores   = mem.take<float>((size_t) n_cells * s.ld);
    s.mask     = mem.take<float>(a.mask ? (size_t) n_cells * s.ld : 0);
    s.unpacked = mem.take<float>((size_t) cells_at_a_time(a) * std::max(ld_k, s.ld_o));
    s.dead     = mem.take<uint8_t>(n_cells);
    s.max      = mem.take<float>(s.ld);
    s.sum      = mem.take<float>(s.ld);
    s.o        = mem.take<float>((size_t) n_rows * s.ld_o);
    return s;
}

void wide_begin(const attn_args & a, const wide_block & b, wide_scratch & s) {
    s.ld = round_up_lanes(b.n_rows());
    for (int r = 0; r < s.ld; ++r) {
        const bool    used = r < b.n_rows();
        const int     head = b.head0 + (used ? r / b.n_q : 0);
        const float * q    = a.query(b.stream, head, b.q0 + r % b.n_q);
        for (int d = 0; d < a.d_k; ++d) {
            s.queries[(size_t) d*s.ld + r] = used ? q[d] : 0.0f;
        }
        s.slopes[r] = a.slope(head);
    }
}

// Mask of the tile's cells [begin, end) as floats, transposed to the columns of the scores.
static void transpose_mask(const attn_args & a, const wide_block & b, int tile, const tile_mask & m, wide_scratch & s) {
    const bool shared = a.mask->ne[2] == 1;
    for (int r = 0; r < (shared ? b.n_q : b.n_rows()); ++r) {
        const ggml_fp16_t * row = a.mask_row(b.stream, b.head0 + r / b.n_q, b.q0 + r % b.n_q) + a.tile_begin(tile);
        for (int c = m.begin; c < m.end; c += LANES) {
            float x[LANES];
            const int n = std::min(LANES, m.end - c);
            vf_store(x, n < LANES ? vf_load_part(row + c, n) : vf_load(row + c));
            for (int i = 0; i < n; ++i) {
                s.mask[(size_t) (c + i)*s.ld + r] = x[i];
            }
        }
    }
    for (int c = m.begin; c < m.end; ++c) {
        float * row = s.mask + (size_t) c*s.ld;
        for (int r = b.n_q; shared && r < b.n_rows(); r += b.n_q) {
            memcpy(row + r, row, b.n_q*sizeof(float));
        }
        for (int r = b.n_rows(); r < s.ld; ++r) {
            row[r] = row[0];
        }
    }
}

// A cell that no query of the block sees may never have been written: its V row is taken as zero.
static void find_dead(const tile_mask & m, wide_scratch & s) {
    for (int c = m.begin; c < m.end; ++c) {
        vf top = vf_set1(-INFINITY);
        for (int r = 0; r < s.ld && !m.plain; r += LANES) {
            top = vf_max(vf_load(s.mask + (size_t) c*s.ld + r), top);
        }
        s.dead[c] = !m.plain && vf_hmax(top) == -INFINITY;
    }
}

static void dot_queries(const attn_args & a, const tile_rows & rows, int kv_head, const tile_mask & m,
                        wide_scratch & s) {
    const unpack_fn unpack = unpack_for(rows.k_type);
    const int block = cells_at_a_time(a);
    const int ld_k  = round_up_lanes(a.d_k);
    for (int c = m.begin; c < m.end; c += block) {
        const int n = std::min(block, m.end - c);
        for (int i = 0; i < n; ++i) {
            unpack(rows.k + (c + i)*rows.k_nb_cell + kv_head*rows.k_nb_head, s.unpacked + (size_t) i*ld_k, a.d_k);
        }
        gemm<a_order::by_row>(s.unpacked, ld_k, s.queries, s.ld, n, s.ld, a.d_k,
                              s.scores + (size_t) c*s.ld, s.ld, true);
    }
}

// Logits of one vector of query rows, in place; returns their maxima.
static vf finish_logits(const attn_args & a, const tile_mask & m, wide_scratch & s, int r) {
    const vf slope = vf_load(s.slopes + r);
    vf top = vf_set1(-INFINITY);
    for (int c = m.begin; c < m.end; ++c) {
        float * at = s.scores + (size_t) c*s.ld + r;
        vf x = vf_logit(vf_load(at), a.scale, a.softcap);
        if (!m.plain) {
            const vf bias = vf_load(s.mask + (size_t) c*s.ld + r);
            x = vf_apply_mask(vf_fma(slope, bias, x), bias);
        }
        vf_store(at, x);
        top = vf_max(x, top);
    }
    return top;
}

static void softmax_columns(const attn_args & a, const tile_mask & m, wide_scratch & s) {
    const vf inf = vf_set1(-INFINITY);
    for (int r = 0; r < s.ld; r += LANES) {
        const vf top  = finish_logits(a, m, s, r);
        const vf base = vf_select_lt(inf, top, top, vf_zero());
        vf sum[2] = { vf_zero(), vf_zero() };
        for (int c = m.begin; c < m.end; ++c) {
            float * at = s.scores + (size_t) c*s.ld + r;
            const vf p = vf_exp(vf_sub(vf_load(at), base));
            vf_store(at, p);
            sum[c & 1] = vf_add(sum[c & 1], p);
        }
        vf_store(s.max + r, top);
        vf_store(s.sum + r, vf_add(sum[0], sum[1]));
    }
}

static void weigh_values(const attn_args & a, const tile_rows & rows, int kv_head, const tile_mask & m, int n_rows,
                         wide_scratch & s) {
    const unpack_fn unpack = unpack_for(rows.v_type);
    const int block = cells_at_a_time(a);
    for (int c = m.begin; c < m.end; c += block) {
        const int n = std::min(block, m.end - c);
        for (int i = 0; i < n; ++i) {
            float * row = s.unpacked + (size_t) i*s.ld_o;
            if (s.dead[c + i]) {
                memset(row, 0, s.ld_o*sizeof(float));
                continue;
            }
            unpack(rows.v + (c + i)*rows.v_nb_cell + kv_head*rows.v_nb_head, row, a.d_v);
            memset(row + a.d_v, 0, (s.ld_o - a.d_v)*sizeof(float));
        }
        gemm<a_order::by_k>(s.scores + (size_t) c*s.ld, s.ld, s.unpacked, s.ld_o, n_rows, s.ld_o, n, s.o, s.ld_o,
                            c == m.begin);
    }
}

void wide_partial(const attn_args & a, const wide_block & b, int tile, const tile_rows & rows, const tile_mask & m,
                  wide_scratch & s) {
    const int kv_head = b.head0 / a.n_gqa;
    if (!m.plain) {
        transpose_mask(a, b, tile, m, s);
    }
    find_dead(m, s);
    dot_queries(a, rows, kv_head, m, s);
    softmax_columns(a, m, s);
    weigh_values(a, rows, kv_head, m, b.n_rows(), s);
}

} // namespace rkv
