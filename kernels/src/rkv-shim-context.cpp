#include "rkv-shim-guard.h"

#include "llama-context.h"
#include "llama-ext.h"
#include "llama-model.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstdio>

using rkv::error_set;
using rkv::guarded;

enum rkv_status rkv_kv_types_check(const llama_model * model, ggml_type type_k, ggml_type type_v, rkv_kv_mismatch * out) {
    return guarded([&] {
        *out = {};
        const llama_hparams & hparams = model->hparams;

        const auto fits = [&](uint32_t layer, ggml_type type, uint32_t head_dim, bool is_v) {
            const uint32_t block_size = (uint32_t) ggml_blck_size(type);
            if (head_dim % block_size == 0) {
                return true;
            }
            *out = { layer, head_dim, block_size, is_v, true };
            return false;
        };

        for (uint32_t il = 0; il < hparams.n_layer(); il++) {
            if (!fits(il, type_k, hparams.n_embd_head_k(il), false) || !fits(il, type_v, hparams.n_embd_head_v(il), true)) {
                break;
            }
        }
        return RKV_OK;
    });
}

namespace {

// What one cell costs in llama_kv_cells: position, shift, extension and the set of its sequences.
constexpr uint64_t CELL_BYTES = 2 * sizeof(llama_pos) + 3 * sizeof(int32_t) + 256 / 8;

bool is_on_host(const llama_model & model, uint32_t layer, bool offload_kqv) {
    if (!offload_kqv) {
        return true;
    }
    const ggml_backend_dev_t dev = model.dev_layer((int) layer);
    return dev == nullptr || ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

void add_cache(const llama_model & model, const llama_context_params & params, uint64_t n_ctx_seq, uint64_t n_stream,
        rkv_context_need & need) {
    const llama_hparams & hparams = model.hparams;

    const bool recurrent = llm_arch_is_recurrent(model.arch);
    // Rows of this architecture are compressed, so its plain row size would be too high a guess.
    const bool unknown = model.arch == LLM_ARCH_DEEPSEEK4;

    const uint64_t n_cells_swa = std::min<uint64_t>(
        n_ctx_seq, GGML_PAD((uint64_t) hparams.n_swa * (params.kv_unified ? params.n_seq_max : 1) + params.n_ubatch, 256));

    uint64_t n_cells_max = 0;
    for (uint32_t il = 0; il < hparams.n_layer() && !unknown; il++) {
        if (!is_on_host(model, il, params.offload_kqv)) {
            continue;
        }
        if (recurrent || hparams.is_recr(il)) {
            need.cache_bytes += (uint64_t) (hparams.n_embd_r() + hparams.n_embd_s()) * sizeof(float) * params.n_seq_max;
            continue;
        }
        if (!hparams.has_kv(il)) {
            continue;
        }
        const uint64_t n_cells = hparams.is_swa(il) && !params.swa_full ? n_cells_swa : n_ctx_seq;
        const uint64_t k_row   = ggml_row_size(params.type_k, hparams.n_embd_k_gqa(il));
        const uint64_t v_row   = hparams.is_mla() ? 0 : ggml_row_size(params.type_v, hparams.n_embd_v_gqa(il));

        need.cache_bytes += (k_row + v_row) * n_cells * n_stream;
        n_cells_max       = std::max(n_cells_max, n_cells);
    }
    need.cells_bytes = n_cells_max * n_stream * CELL_BYTES;
}

void add_compute(const llama_model & model, const llama_context_params & params, uint64_t n_ctx_seq, rkv_context_need & need) {
    const uint64_t n_vocab  = model.vocab.n_tokens();
    const uint64_t n_ctx    = params.n_ctx;
    const uint64_t n_tokens = std::min<uint64_t>(n_ctx, params.n_ubatch);

    if (model.devices.empty()) {
        const bool     masked = need.cells_bytes > 0;
        const uint64_t mask   = masked ? n_tokens * n_ctx_seq * sizeof(ggml_fp16_t) : 0;
        const uint64_t hidden = n_tokens * model.hparams.n_embd * sizeof(float);
        const uint64_t logits = model.output != nullptr ? n_tokens * n_vocab * sizeof(float) : 0;

        // The three do not have to live at the same time.
        need.compute_bytes += std::max({ mask, hidden, logits });
    }
    need.compute_bytes += params.n_seq_max * n_vocab * sizeof(float);   // output rows
    need.compute_bytes += (uint64_t) params.n_batch * sizeof(int32_t);  // output ids
}

} // namespace

enum rkv_status rkv_context_need_get(const llama_model * model, const llama_context_params * params, rkv_context_need * out) {
    return guarded([&] {
        *out = {};
        const uint64_t n_stream  = params->kv_unified ? 1 : params->n_seq_max;
        const uint64_t n_ctx_seq = GGML_PAD((uint64_t) params->n_ctx / n_stream, 256);

        add_cache(*model, *params, n_ctx_seq, n_stream, *out);
        add_compute(*model, *params, n_ctx_seq, *out);
        return RKV_OK;
    });
}

enum rkv_status rkv_context_new(llama_model * model, const llama_context_params * params, llama_context ** out) {
    return guarded([&] {
        *out = llama_init_from_model(model, *params);
        if (*out == nullptr) {
            error_set("the context could not be made");
            return RKV_ERR_FAILED;
        }
        return RKV_OK;
    });
}

enum rkv_status rkv_context_decode(llama_context * ctx, const llama_batch * batch, int32_t * answer) {
    return guarded(rkv::work::computes, [&] {
        *answer = llama_decode(ctx, *batch);
        return RKV_OK;
    });
}

enum rkv_status rkv_context_encode(llama_context * ctx, const llama_batch * batch, int32_t * answer) {
    return guarded(rkv::work::computes, [&] {
        *answer = llama_encode(ctx, *batch);
        return RKV_OK;
    });
}

namespace {

// The CPU backend is a module, so its functions are found by name.
template <typename F> F * cpu_function(const char * name) {
    const ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    return reg ? (F *) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}

} // namespace

enum rkv_status rkv_threadpool_new(int32_t n_threads, ggml_threadpool_t * out) {
    return guarded([&] {
        *out = nullptr;
        if (auto * make = cpu_function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")) {
            ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
            *out = make(&params);
        }
        return RKV_OK;
    });
}

void rkv_threadpool_free(ggml_threadpool_t pool) {
    (void) guarded([&] {
        if (auto * release = cpu_function<decltype(ggml_threadpool_free)>("ggml_threadpool_free")) {
            release(pool);
        }
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_breakdown_get(const llama_context * ctx, rkv_breakdown_row * rows, size_t n_rows, size_t * n_out) {
    return guarded([&] {
        size_t n = 0;
        for (const auto & [buft, bytes] : llama_get_memory_breakdown(ctx)) {
            if (n < n_rows) {
                const ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);

                rkv_breakdown_row & row = rows[n];
                std::snprintf(row.buffer_type, sizeof(row.buffer_type), "%s", ggml_backend_buft_name(buft));
                std::snprintf(row.device, sizeof(row.device), "%s", dev ? ggml_backend_dev_name(dev) : "");
                row.is_host       = ggml_backend_buft_is_host(buft);
                row.model_bytes   = bytes.model;
                row.context_bytes = bytes.context;
                row.compute_bytes = bytes.compute;
            }
            n++;
        }
        *n_out = n;
        return RKV_OK;
    });
}
