#pragma once

// A few layers on a device, that decode by numbers they are given.

#include "rkv-attn-node.h"
#include "rkv-set-rows.h"
#include "rkv-step.h"

#include "ggml-alloc.h"
#include "ggml-cpp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

// Layers that write new rows and attend to all, with a window of their own cells.
class decoder {
public:
    static constexpr int N_LAYER = 5, N_HEAD = 8, N_HEAD_KV = 2, D = 64, TILE = 64, N_KV = 1024;

    decoder(ggml_backend_t backend, ggml_backend_buffer_type_t tail_buft, ggml_type type, int64_t window)
        : backend(backend), type(type), window(window), device(ggml_init({ 64*ggml_tensor_overhead(), nullptr, true })), host(ggml_init({ 64*ggml_tensor_overhead(), nullptr, true })) {
        for (int il = 0; il < N_LAYER; ++il) {
            for (int kv = 0; kv < 2; ++kv) {
                rows[il][kv][0] = ggml_new_tensor_3d(device.get(), type, D*N_HEAD_KV, window, 1);
                rows[il][kv][1] = window < N_KV ? ggml_new_tensor_3d(host.get(), type, D*N_HEAD_KV, N_KV - window, 1) : nullptr;
            }
        }
        memory.reset(ggml_backend_alloc_ctx_tensors_from_buft(device.get(), ggml_backend_get_default_buffer_type(backend)));
        ggml_backend_buffer_clear(memory.get(), 0);
        if (window < N_KV) {
            tails.reset(ggml_backend_alloc_ctx_tensors_from_buft(host.get(), tail_buft));
            ggml_backend_buffer_clear(tails.get(), 0);
        }
    }

    // `n_new` tokens behind `live`; `x` of random numbers. What all layers give.
    std::vector<float> step(const std::vector<float> & x, int n_new, int live) {
        streams = { { uint32_t(live), uint32_t(live + n_new), uint32_t(live + n_new) } };
        of_cache = { 1, streams.data() };
        const int64_t n_kv = std::min<int64_t>(GGML_PAD(live + n_new, 256), N_KV);

        ggml_context_ptr ctx(ggml_init({ 1024*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true }));
        ggml_cgraph *    graph = ggml_new_graph(ctx.get());
        ggml_tensor *    idxs  = input(ctx.get(), ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I64, n_new));
        ggml_tensor *    mask  = input(ctx.get(), ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F16, n_kv, n_new));
        ggml_tensor *    in    = input(ctx.get(), ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, int64_t(x.size())));
        std::vector<ggml_tensor *> out;
        size_t at = 0;
        for (int il = 0; il < N_LAYER; ++il) {
            out.push_back(layer(ctx.get(), graph, il, in, at, n_new, n_kv, idxs, mask));
        }
        ggml_gallocr_ptr galloc(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
        GGML_ASSERT(ggml_gallocr_alloc_graph(galloc.get(), graph));

        std::vector<int64_t>     cells(n_new);
        std::vector<ggml_fp16_t> seen(size_t(n_kv)*n_new);
        for (int i = 0; i < n_new; ++i) {
            cells[i] = live + i;
            for (int64_t cell = 0; cell < n_kv; ++cell) {
                seen[i*n_kv + cell] = ggml_fp32_to_fp16(cell <= live + i ? 0.0f : -INFINITY);
            }
        }
        ggml_backend_tensor_set(idxs, cells.data(), 0, ggml_nbytes(idxs));
        ggml_backend_tensor_set(mask, seen.data(), 0, ggml_nbytes(mask));
        ggml_backend_tensor_set(in, x.data(), 0, ggml_nbytes(in));
        GGML_ASSERT(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);

        std::vector<float> res;
        for (ggml_tensor * t : out) {
            std::vector<float> one(ggml_nelements(t));
            ggml_backend_tensor_get(t, one.data(), 0, ggml_nbytes(t));
            res.insert(res.end(), one.begin(), one.end());
        }
        return res;
    }

    static size_t numbers(int n_new) { return size_t(N_LAYER)*n_new*D*(N_HEAD + 2*N_HEAD_KV); }

    // Someone else changes a cell.
    void change(int il, int64_t cell, const std::vector<uint8_t> & row) {
        ggml_tensor * t = rows[il][0][cell >= window];
        ggml_backend_tensor_set(t, row.data(), size_t(cell >= window ? cell - window : cell)*t->nb[1], row.size());
    }

    size_t row_bytes() const { return ggml_row_size(type, D*N_HEAD_KV); }

private:
    ggml_backend_t               backend;
    ggml_type                    type;
    int64_t                      window;
    ggml_context_ptr             device, host;
    ggml_backend_buffer_ptr      memory, tails;
    ggml_tensor *                rows[N_LAYER][2][2] = {};
    std::vector<rkv_step_stream> streams;
    rkv_step                     of_cache = {};

    static ggml_tensor * input(ggml_context *, ggml_tensor * t) {
        ggml_set_input(t);
        return t;
    }

    ggml_tensor * part(ggml_context * ctx, ggml_tensor * of, int64_t n) const {
        return ggml_view_4d(ctx, of, D, n, N_HEAD_KV, 1, of->nb[1], ggml_row_size(type, D), of->nb[2], 0);
    }

    ggml_tensor * take(ggml_context * ctx, ggml_tensor * in, size_t & at, int64_t ne0, int64_t ne1, int64_t ne2) const {
        ggml_tensor * t = ggml_view_3d(ctx, in, ne0, ne1, ne2, ne0*sizeof(float), ne0*ne1*sizeof(float), at*sizeof(float));
        at += size_t(ne0*ne1*ne2);
        return t;
    }

    ggml_tensor * layer(ggml_context * ctx, ggml_cgraph * graph, int il, ggml_tensor * in, size_t & at, int n_new, int64_t n_kv, ggml_tensor * idxs, ggml_tensor * mask) {
        ggml_tensor * q = take(ctx, in, at, D, n_new, N_HEAD);
        ggml_tensor * k[2] = {};
        ggml_tensor * v[2] = {};
        for (int kv = 0; kv < 2; ++kv) {
            ggml_tensor * put = ggml_set_rows(ctx, ggml_reshape_2d(ctx, rows[il][kv][0], D*N_HEAD_KV, window), take(ctx, in, at, D*N_HEAD_KV, n_new, 1), idxs);
            if (rows[il][kv][1]) {
                put->src[RKV_SET_ROWS_SRC_TAIL] = rows[il][kv][1];
                put->op_params[RKV_SET_ROWS_PARAM_WINDOW]  = int32_t(window);
                put->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] = N_KV;
            }
            ggml_build_forward_expand(graph, put);
            (kv == 0 ? k : v)[0] = part(ctx, rows[il][kv][0], std::min(n_kv, window));
            (kv == 0 ? k : v)[1] = n_kv > window ? part(ctx, rows[il][kv][1], n_kv - window) : nullptr;
        }
        ggml_tensor * node = ggml_flash_attn_ext(ctx, q, k[0], v[0], mask, 1.0f/std::sqrt(float(D)), 0.0f, 0.0f);
        node->src[RKV_ATTN_SRC_K_TAIL] = k[1];
        node->src[RKV_ATTN_SRC_V_TAIL] = v[1];
        node->op_params[RKV_OP_PARAM_TILE]  = TILE;
        node->op_params[RKV_OP_PARAM_LAYER] = il;
        const rkv_step * step = &of_cache;
        memcpy(node->op_params + RKV_OP_PARAM_STEP, &step, sizeof(step));
        ggml_set_output(node);
        ggml_build_forward_expand(graph, node);
        return node;
    }
};
