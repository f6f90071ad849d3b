#include "test-rkv-attn-rig.h"

#include "rkv-attn-node.h"
#include "rkv-test-cpu.h"

#include "ggml-alloc.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>
#include <random>

static const char * mask_names[] = { "none", "causal", "padded", "holes", "stairs", "random", "first_dead", "last_dead", "all_dead",
                                     "one_low", "distance", "of_heads" };

std::string attn_case::name() const {
    char text[256];
    const std::string types = is_mixed() ? std::string(" tail ") + ggml_type_name(tail_k) + "/" + ggml_type_name(tail_v) : "";
    snprintf(text, sizeof(text), "%s/%s%s d %d/%d heads %d/%d n_q %d n_kv %d streams %d tile %d mask %s sink %g cap %g bias %g%s",
             ggml_type_name(type_k), ggml_type_name(type_v), types.c_str(), d_k, d_v, n_head, n_head_kv, n_q, n_kv, n_stream, tile,
             mask_names[(int) mask], sink, softcap, max_bias, v_in_k ? " v in k" : "");
    return text;
}

static std::vector<float> random_floats(size_t n, float size, std::mt19937 & rng) {
    std::normal_distribution<float> dist(0.0f, size);
    std::vector<float> x(n);
    for (float & f : x) {
        f = dist(rng);
    }
    return x;
}

// Rows in the type of the cache, and the floats that they stand for.
static std::vector<uint8_t> to_type(ggml_type type, int d, std::vector<float> & x) {
    const int64_t n_rows = (int64_t) x.size() / d;
    std::vector<uint8_t> rows(n_rows * ggml_row_size(type, d));
    if (type == GGML_TYPE_F32) {
        memcpy(rows.data(), x.data(), rows.size());
    } else {
        ggml_quantize_chunk(type, x.data(), rows.data(), 0, n_rows, d, nullptr);
        ggml_get_type_traits(type)->to_float(rows.data(), x.data(), (int64_t) x.size());
    }
    return rows;
}

attn_rig::attn_rig(const attn_case & c, uint32_t seed) : c(c) {
    std::mt19937 rng(seed);
    const size_t n_rows = (size_t) c.n_kv * c.n_head_kv * c.n_stream;
    q   = random_floats((size_t) c.d_k * c.n_q * c.n_head * c.n_stream, 1.0f, rng);
    k32 = random_floats(n_rows * c.d_k, c.k_size, rng);
    const std::vector<float> k_made = k32;
    k = to_type(c.type_k, c.d_k, k32);
    if (c.is_mixed()) {
        k_tail = keep_tail(c.tail_k, c.d_k, k_made, k32);
    }
    if (c.v_in_k) {
        for (size_t r = 0; r < n_rows; ++r) {
            v32.insert(v32.end(), k32.begin() + r*c.d_k, k32.begin() + r*c.d_k + c.d_v);
        }
    } else {
        v32 = c.v_ones ? std::vector<float>(n_rows * c.d_v, 1.0f) : random_floats(n_rows * c.d_v, c.v_size, rng);
        const std::vector<float> v_made = v32;
        v = to_type(c.type_v, c.d_v, v32);
        if (c.is_mixed()) {
            v_tail = keep_tail(c.tail_v, c.d_v, v_made, v32);
        }
    }
    make_mask(seed);
}

// Rows of `x` in the tail's type; `all` gets what they stand for, from the tail's first cell on.
std::vector<uint8_t> attn_rig::keep_tail(ggml_type type, int d, std::vector<float> x, std::vector<float> & all) const {
    std::vector<uint8_t> rows = to_type(type, d, x);
    for (size_t i = 0; i < x.size(); ++i) {
        if (int(i/d/c.n_head_kv%c.n_kv) >= c.tail_from) {
            all[i] = x[i];
        }
    }
    return rows;
}

float attn_rig::mask_at(int stream, int head, int iq, int cell) const {
    return mask[(((size_t) stream*n_plane() + head % n_plane())*c.n_q + iq)*c.n_kv + cell];
}

void attn_rig::make_mask(uint32_t seed) {
    std::mt19937 rng(seed + 1);
    mask.assign((size_t) c.n_kv * c.n_q * n_plane() * c.n_stream, 0.0f);
    seen.assign((size_t) c.n_kv * c.n_stream, 0);
    const int used = c.mask == mask_kind::padded ? c.n_kv - c.n_kv/3 : c.n_kv;
    const int low  = (int) (rng() % c.n_kv);
    for (size_t i = 0; i < mask.size(); ++i) {
        const int cell  = (int) (i % c.n_kv);
        const int iq    = (int) (i / c.n_kv % c.n_q);
        const int first = used - c.n_q + iq;
        bool  live = true;
        float bias = 0.0f;
        switch (c.mask) {
            case mask_kind::none: break;
            case mask_kind::causal:
            case mask_kind::padded:     live = cell <= std::max(first, 0); break;
            case mask_kind::holes:      live = cell <= std::max(first, 0) && cell % 3 != 1; break;
            case mask_kind::stairs:     live = cell >= (int64_t) iq*c.n_kv/c.n_q; break;
            case mask_kind::of_heads:
            case mask_kind::random:     live = rng() % 2; bias = (rng() % 64)/-16.0f; break;
            case mask_kind::first_dead: live = cell >= c.n_kv/2; break;
            case mask_kind::last_dead:  live = cell < c.n_kv/2; break;
            case mask_kind::all_dead:   live = false; break;
            case mask_kind::one_low:    live = cell == low; bias = -60000.0f; break;
            case mask_kind::distance:   live = cell <= std::max(first, 0); bias = (float) (cell - first); break;
        }
        mask[i] = live ? ggml_fp16_to_fp32(ggml_fp32_to_fp16(bias)) : -INFINITY;
        seen[i / ((size_t) c.n_kv*c.n_q*n_plane())*c.n_kv + cell] |= live;
    }
}

struct attn_rig::graph {
    ggml_context * ctx  = nullptr;
    ggml_tensor  * q    = nullptr;
    ggml_tensor  * mask = nullptr;
    ggml_tensor  * sinks = nullptr;
    ggml_tensor  * k[2] = {}, * v[2] = {};
    ggml_tensor  * node = nullptr;
};

// Window and tail have strides of their own: [head, cell] in the window, [cell, head] with a gap in the tail.
ggml_tensor * attn_rig::part(graph & g, ggml_type type, bool is_v, int64_t n_cells, bool in_tail) const {
    const int       d    = is_v ? c.d_v : c.d_k;
    const size_t    row  = ggml_row_size(type, d);
    const int64_t   room = n_cells + 3;
    const size_t    head = in_tail ? row*room : row;
    const size_t    cell = in_tail ? row : row*c.n_head_kv;
    const int64_t   rows = room*c.n_head_kv;
    ggml_tensor * base = ggml_new_tensor_3d(g.ctx, type, d, rows, c.n_stream);
    return ggml_view_4d(g.ctx, base, d, n_cells, c.n_head_kv, c.n_stream, cell, head, row*rows, 0);
}

void attn_rig::build(graph & g, const attn_run & how) const {
    const int64_t n_kv  = c.n_kv + how.extra;
    const int64_t n_win = how.n_win < 0 ? n_kv : how.n_win;
    g.ctx  = ggml_init({ 64*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true });
    g.q    = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F32, c.d_k, c.n_head, c.n_q, c.n_stream);
    g.mask = c.mask == mask_kind::none ? nullptr
        : ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, n_kv, c.n_q, n_plane(), c.n_stream);
    for (int i = 0; i < (n_win < n_kv ? 2 : 1); ++i) {
        const int64_t n = i == 0 ? n_win : n_kv - n_win;
        const bool in_tail = i == 1 || how.as_tail;
        g.k[i] = part(g, c.type_of(false, i == 1), false, n, in_tail);
        g.v[i] = c.v_in_k ? ggml_view_4d(g.ctx, g.k[i], c.d_v, n, c.n_head_kv, c.n_stream, g.k[i]->nb[1], g.k[i]->nb[2],
                                         g.k[i]->nb[3], 0)
                          : part(g, c.type_of(true, i == 1), true, n, in_tail);
    }
    g.node = ggml_flash_attn_ext(g.ctx, ggml_permute(g.ctx, g.q, 0, 2, 1, 3), g.k[0], g.v[0], g.mask, scale(), c.max_bias,
                                 c.softcap);
    g.node->src[RKV_ATTN_SRC_K_TAIL] = g.k[1];
    g.node->src[RKV_ATTN_SRC_V_TAIL] = g.v[1];
    if (!std::isnan(c.sink)) {
        g.sinks = ggml_new_tensor_1d(g.ctx, GGML_TYPE_F32, c.n_head);
        ggml_flash_attn_ext_add_sinks(g.node, g.sinks);
    }
    g.node->op_params[RKV_OP_PARAM_TILE] = how.stock ? 0 : c.tile;
    memcpy(g.node->op_params + RKV_OP_PARAM_COUNTERS, &how.counters, sizeof(void *));
}

void attn_rig::fill_part(ggml_tensor * t, bool is_v, int64_t cell0, const attn_run & how) const {
    const bool   behind = c.is_mixed() && cell0 > 0;
    const size_t row    = ggml_row_size(t->type, t->ne[0]);
    const std::vector<uint8_t> & rows = behind ? (is_v ? v_tail : k_tail) : is_v ? v : k;
    memset(t->view_src->data, how.poison ? 0xff : 0, ggml_nbytes(t->view_src));
    for (int64_t s = 0; s < c.n_stream; ++s) {
        for (int64_t i = 0; i < t->ne[1] && cell0 + i < c.n_kv; ++i) {
            const int64_t cell = cell0 + i;
            if (how.poison && !seen[s*c.n_kv + cell]) {
                continue;
            }
            for (int64_t h = 0; h < c.n_head_kv; ++h) {
                char * to = (char *) t->data + i*t->nb[1] + h*t->nb[2] + s*t->nb[3];
                memcpy(to, rows.data() + ((s*c.n_kv + cell)*c.n_head_kv + h)*row, row);
                to[0] ^= is_v && cell == how.flip_cell ? 0x40 : 0;
            }
        }
    }
}

void attn_rig::fill(graph & g, const attn_run & how) const {
    float * qd = (float *) g.q->data;
    for (int64_t r = 0; r < (int64_t) c.n_q*c.n_head*c.n_stream; ++r) {
        const int64_t iq = r % c.n_q, h = r / c.n_q % c.n_head, s = r / c.n_q / c.n_head;
        memcpy(qd + ((s*c.n_q + iq)*c.n_head + h)*c.d_k, q.data() + r*c.d_k, c.d_k*sizeof(float));
    }
    if (g.mask) {
        ggml_fp16_t * m = (ggml_fp16_t *) g.mask->data;
        const int64_t n = g.mask->ne[0];
        for (int64_t i = 0; i < ggml_nelements(g.mask); ++i) {
            m[i] = ggml_fp32_to_fp16(i % n < c.n_kv ? mask[i/n*c.n_kv + i % n] : -INFINITY);
        }
    }
    if (g.sinks) {
        std::fill_n((float *) g.sinks->data, c.n_head, c.sink);
    }
    for (int i = 0; i < 2 && g.k[i]; ++i) {
        const int64_t cell0 = i == 0 ? 0 : g.k[0]->ne[1];
        fill_part(g.k[i], false, cell0, how);
        if (!c.v_in_k) {
            fill_part(g.v[i], true, cell0, how);
        }
    }
}

std::vector<float> attn_rig::run(ggml_backend_t backend, const attn_run & how) const {
    graph g;
    build(g, how);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(g.ctx, backend);
    ggml_backend_buffer_clear(buffer, 0xff);
    fill(g, how);

    if (how.compute) {
        how.compute(g.node);
    } else {
        ggml_cgraph * graph = ggml_new_graph(g.ctx);
        ggml_build_forward_expand(graph, g.node);
        test_cpu_set_threads(backend, how.n_threads);
        ggml_backend_graph_compute(backend, graph);
    }

    std::vector<float> out(ggml_nelements(g.node));
    ggml_backend_tensor_get(g.node, out.data(), 0, ggml_nbytes(g.node));
    ggml_backend_buffer_free(buffer);
    ggml_free(g.ctx);
    return out;
}

std::vector<double> attn_rig::reference() const {
    std::vector<double> out((size_t) c.d_v * c.n_head * c.n_q * c.n_stream, 0.0);
    std::vector<double> logits(c.n_kv);
    const int    n_pow2 = 1 << (int) std::floor(std::log2(c.n_head));
    const double m0 = std::pow(2.0, -c.max_bias/n_pow2), m1 = std::pow(2.0, -c.max_bias/2.0/n_pow2);
    for (size_t row = 0; row < (size_t) c.n_head*c.n_q*c.n_stream; ++row) {
        const int h = (int) (row % c.n_head), iq = (int) (row / c.n_head % c.n_q), s = (int) (row / c.n_head / c.n_q);
        const double slope = c.max_bias <= 0.0f ? 1.0 : h < n_pow2 ? std::pow(m0, h + 1) : std::pow(m1, 2*(h - n_pow2) + 1);
        const float * qr = q.data() + (((size_t) s*c.n_head + h)*c.n_q + iq)*c.d_k;
        const size_t  kv = (size_t) (h / (c.n_head/c.n_head_kv));

        double max = std::isnan(c.sink) ? -INFINITY : (double) c.sink;
        for (int cell = 0; cell < c.n_kv; ++cell) {
            const float * kr = k32.data() + (((size_t) s*c.n_kv + cell)*c.n_head_kv + kv)*c.d_k;
            double dot = 0.0;
            for (int d = 0; d < c.d_k; ++d) {
                dot += (double) qr[d]*kr[d];
            }
            dot *= scale();
            logits[cell] = (c.softcap != 0.0f ? c.softcap*std::tanh(dot/c.softcap) : dot) + slope*mask_at(s, h, iq, cell);
            max = std::max(max, logits[cell]);
        }
        double   sum = std::isnan(c.sink) ? 0.0 : std::exp(c.sink - max);
        double * o   = out.data() + row*c.d_v;
        for (int cell = 0; cell < c.n_kv && max > -INFINITY; ++cell) {
            const double  p  = std::exp(logits[cell] - max);
            const float * vr = v32.data() + (((size_t) s*c.n_kv + cell)*c.n_head_kv + kv)*c.d_v;
            sum += p;
            for (int d = 0; d < c.d_v; ++d) {
                o[d] += p*vr[d];
            }
        }
        for (int d = 0; d < c.d_v && sum > 0.0; ++d) {
            o[d] /= sum;
        }
    }
    return out;
}

double relative_error(const std::vector<float> & x, const std::vector<double> & ref) {
    double err = 0.0, size = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
        err  += (x[i] - ref[i])*(x[i] - ref[i]);
        size += ref[i]*ref[i];
    }
    return size == 0.0 ? std::sqrt(err) : std::sqrt(err/size);
}
