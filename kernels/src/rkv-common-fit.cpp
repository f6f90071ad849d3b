#include "rkv-common-fit.h"

#include "../src/llama-ext.h"

#include "llama.h"
#include "log.h"

#include <algorithm>

static constexpr uint64_t MIB = 1 << 20;

// The cache's length in steps of which a context is made.
static constexpr uint32_t CTX_STEP = 256;

static bool has_window(const llama_context_params & cparams) {
    return cparams.rkv.mode == RKV_MODE_WINDOW && cparams.rkv.window_cells != RKV_WINDOW_RESIDENT;
}

static bool is_automatic(const llama_context_params & cparams) {
    return has_window(cparams) && cparams.rkv.window_cells == RKV_WINDOW_AUTO && cparams.rkv.vram_target == 0;
}

void rkv_fit_begin(const llama_context_params & cparams, uint32_t & n_ctx_min) {
    if (has_window(cparams)) {
        n_ctx_min = UINT32_MAX; // as for a context that the user asked for in full
    }
}

// Of free host memory a tail may take three quarters.
static void fit_host(llama_context_params & cparams, const llama_device_memory_data & host) {
    const uint64_t free = host.free > 0 ? uint64_t(host.free)/4*3 : 0;
    if (free == 0 || host.mb.context <= free) {
        return;
    }
    const uint32_t asked  = cparams.n_ctx;
    const uint32_t step   = CTX_STEP*std::max(1u, cparams.kv_unified ? 1 : cparams.n_seq_max);
    const uint64_t fitted = uint64_t(double(asked)*double(free)/double(host.mb.context));
    cparams.n_ctx = std::max(uint32_t(fitted)/step*step, step);
    LOG_WRN("rolling-kv: fit: a cache of %u cells takes %zu MiB of host memory, of which %llu MiB may be taken; the context is made of %u cells\n", asked,
            host.mb.context/MIB, (unsigned long long) (free/MIB), cparams.n_ctx);
}

void rkv_fit_reserve(llama_context_params & cparams, const std::vector<llama_device_memory_data> & memory,
        const std::vector<llama_device_memory_data> & extra, const size_t * margins, bool n_ctx_auto) {
    if (!has_window(cparams)) {
        return;
    }
    const size_t n_device = memory.size() - 1;
    if (n_ctx_auto) {
        fit_host(cparams, memory.back());
    }
    if (!is_automatic(cparams)) {
        LOG_INF("rolling-kv: fit: the context stays at %u cells, whose window is given\n", cparams.n_ctx);
        return;
    }
    for (size_t id = 0; id < n_device; ++id) {
        const size_t draft = id < extra.size() ? extra[id].mb.model + extra[id].mb.context : 0;
        // Slots of the ring take up to an eighth of what is then still free.
        const uint64_t margin = margins[id] + margins[id]/7;
        cparams.rkv.reserve_bytes = std::max<uint64_t>(cparams.rkv.reserve_bytes, margin + memory[id].mb.compute + draft);
    }
    LOG_INF("rolling-kv: fit: the context stays at %u cells; its window takes what is free beside the weights, but for %llu MiB\n", cparams.n_ctx,
            (unsigned long long) (cparams.rkv.reserve_bytes/MIB));
}
