// Asking the devices of a context to stage tiles, and what they did.

#include "rkv-staging.h"

#include "rkv-residency-api.h"

#include "llama-context.h"

#include <algorithm>

typedef void (*set_t)(ggml_backend_t, const rkv_staging_params *);
typedef void (*totals_t)(ggml_backend_t, rkv_staging_totals *);

typedef ggml_backend_buffer_type_t (*tail_buft_t)(ggml_backend_dev_t);

template <typename F> static F proc_of(ggml_backend_dev_t dev, const char * name) {
    ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    return reg ? (F) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}

ggml_backend_buffer_type_t rkv_tail_buffer_type(ggml_backend_dev_t dev) {
    const auto named = proc_of<tail_buft_t>(dev, RKV_TAIL_BUFT_PROC);
    return named ? named(dev) : ggml_backend_cpu_buffer_type();
}

void rkv_staging_set(const std::vector<ggml_backend_t> & backends, const rkv_attn_config & config) {
    for (ggml_backend_t backend : backends) {
        const auto set = proc_of<set_t>(ggml_backend_get_device(backend), RKV_STAGING_SET_PROC);
        if (set && config.tile != 0) {
            set(backend, &config.staging);
        }
    }
}

static void add(rkv_staging_totals & sum, const rkv_staging_totals & one) {
    sum.steps           += one.steps;
    sum.depth            = std::max(sum.depth, one.depth);
    sum.slot_bytes       = std::max(sum.slot_bytes, one.slot_bytes);
    sum.device_bytes    += one.device_bytes;
    sum.tiles_early     += one.tiles_early;
    sum.tiles_late      += one.tiles_late;
    sum.tiles_kept      += one.tiles_kept;
    sum.tiles_discarded += one.tiles_discarded;
    sum.bytes           += one.bytes;
    sum.bytes_late      += one.bytes_late;
    sum.stalls          += one.stalls;
    sum.stall_ns        += one.stall_ns;
}

bool rkv_staging_totals_get(struct llama_context * ctx, struct rkv_staging_totals * totals) {
    *totals = {};
    ctx->synchronize();

    bool any = false;
    ggml_backend_sched_t sched = ctx->get_sched();
    for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); ++i) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(sched, i);
        if (const auto get = proc_of<totals_t>(ggml_backend_get_device(backend), RKV_STAGING_TOTALS_PROC)) {
            rkv_staging_totals one = {};
            get(backend, &one);
            add(*totals, one);
            any = true;
        }
    }
    return any;
}
