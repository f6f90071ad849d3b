// The part of the rig that runs a case on a device: the window in its memory, the tail where the device wants tails.

#include "test-rkv-attn-rig.h"

#include "rkv-attn-node.h"

#include "ggml-alloc.h"
#include "ggml-cpp.h"

#include <algorithm>
#include <cstring>

namespace {

// Tensors in one kind of memory.
struct placed {
    ggml_context_ptr        ctx{ ggml_init({ 16*ggml_tensor_overhead(), nullptr, true }) };
    ggml_backend_buffer_ptr buffer;

    void alloc(ggml_backend_buffer_type_t buft) {
        if (ggml_get_first_tensor(ctx.get())) {
            buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), buft));
            GGML_ASSERT(buffer && "the device has no memory for one node");
        }
    }
};

ggml_tensor * view_of(ggml_context * ctx, const attn_case & c, ggml_tensor * rows, int d, int d_row) {
    return ggml_view_4d(ctx, rows, d, rows->ne[1], c.n_head_kv, c.n_stream, rows->nb[1], ggml_row_size(rows->type, d_row), rows->nb[2], 0);
}

} // namespace

// Cells [cell0, cell0 + rows->ne[1]) of K or V, those that nobody sees as they should be.
void attn_rig::put_rows(ggml_tensor * rows, bool is_v, int64_t cell0, bool poison) const {
    const std::vector<uint8_t> & from = is_v ? v : k;
    std::vector<uint8_t> bytes(ggml_nbytes(rows), poison ? 0xff : 0);
    for (int64_t s = 0; s < c.n_stream; ++s) {
        for (int64_t i = 0; i < rows->ne[1]; ++i) {
            const size_t at = size_t(s)*c.n_kv + cell0 + i;
            if (seen[at] || !poison) {
                memcpy(bytes.data() + s*rows->nb[2] + i*rows->nb[1], from.data() + at*rows->nb[1], rows->nb[1]);
            }
        }
    }
    ggml_backend_tensor_set(rows, bytes.data(), 0, bytes.size());
}

std::vector<float> attn_rig::run_on(ggml_backend_t backend, const device_run & how) const {
    const int64_t n_win    = how.n_win < 0 ? c.n_kv : how.n_win;
    const int64_t cells[2] = { n_win, c.n_kv - n_win };
    placed device, tail, views;

    ggml_tensor * q     = ggml_new_tensor_4d(device.ctx.get(), GGML_TYPE_F32, c.d_k, c.n_q, c.n_head, c.n_stream);
    ggml_tensor * m     = mask.empty() || c.mask == mask_kind::none ? nullptr
                        : ggml_new_tensor_4d(device.ctx.get(), GGML_TYPE_F16, c.n_kv, c.n_q, n_plane(), c.n_stream);
    ggml_tensor * sinks = std::isnan(c.sink) ? nullptr : ggml_new_tensor_1d(device.ctx.get(), GGML_TYPE_F32, c.n_head);
    ggml_tensor * rows[2][2] = {}; // [parts in use][K, V]
    int           n_part     = 0;
    for (int part = 0; part < 2; ++part) {
        if (cells[part] == 0) {
            continue;
        }
        ggml_context * ctx = (part == 0 ? device : tail).ctx.get();
        rows[n_part][0] = ggml_new_tensor_3d(ctx, c.type_k, int64_t(c.d_k)*c.n_head_kv, cells[part], c.n_stream);
        rows[n_part][1] = c.v_in_k ? rows[n_part][0] : ggml_new_tensor_3d(ctx, c.type_v, int64_t(c.d_v)*c.n_head_kv, cells[part], c.n_stream);
        n_part++;
    }
    device.alloc(ggml_backend_get_default_buffer_type(backend));
    tail.alloc(how.tail);

    ggml_context_ptr graph_ctx(ggml_init({ 32*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true }));
    ggml_context *   ctx = graph_ctx.get();
    ggml_tensor *    k[2] = {};
    ggml_tensor *    v[2] = {};
    for (int i = 0; i < n_part; ++i) {
        k[i] = view_of(ctx, c, rows[i][0], c.d_k, c.d_k);
        v[i] = view_of(ctx, c, rows[i][1], c.d_v, c.v_in_k ? c.d_k : c.d_v);
    }
    ggml_tensor * node = ggml_flash_attn_ext(ctx, q, k[0], v[0], m, scale(), c.max_bias, c.softcap);
    node->src[RKV_ATTN_SRC_K_TAIL] = k[1];
    node->src[RKV_ATTN_SRC_V_TAIL] = v[1];
    node->op_params[RKV_OP_PARAM_TILE] = c.tile;
    if (sinks) {
        ggml_flash_attn_ext_add_sinks(node, sinks);
    }
    if (!ggml_backend_supports_op(backend, node)) {
        return {};
    }

    ggml_backend_tensor_set(q, this->q.data(), 0, ggml_nbytes(q));
    if (m) {
        std::vector<ggml_fp16_t> halves(mask.size());
        std::transform(mask.begin(), mask.end(), halves.begin(), ggml_fp32_to_fp16);
        ggml_backend_tensor_set(m, halves.data(), 0, ggml_nbytes(m));
    }
    if (sinks) {
        const std::vector<float> values(c.n_head, c.sink);
        ggml_backend_tensor_set(sinks, values.data(), 0, ggml_nbytes(sinks));
    }
    for (int i = 0; i < n_part; ++i) {
        const int64_t cell0 = i == 0 ? 0 : n_win;
        put_rows(rows[i][0], false, cell0, how.poison);
        if (!c.v_in_k) {
            put_rows(rows[i][1], true, cell0, how.poison);
        }
    }

    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, node);
    ggml_gallocr_ptr galloc(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
    GGML_ASSERT(ggml_gallocr_alloc_graph(galloc.get(), graph));
    GGML_ASSERT(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);

    std::vector<float> out(ggml_nelements(node));
    ggml_backend_tensor_get(node, out.data(), 0, ggml_nbytes(node));
    if (tail.buffer && how.keep) {
        how.keep->push_back(tail.buffer.release());
    }
    return out;
}
