// Asking the devices of a context to stage tiles, and what they did.

#include "rkv-staging.h"

#include "rkv-host-api.h"
#include "rkv-kv-split.h"
#include "rkv-report.h"
#include "rkv-residency-api.h"

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-model.h"

#include <algorithm>
#include <stdexcept>

typedef bool (*set_t)(ggml_backend_t, const rkv_staging_params *, const rkv_staging_need *);
typedef void (*totals_t)(ggml_backend_t, rkv_staging_totals *);
typedef void (*link_totals_t)(ggml_backend_dev_t, rkv_link_totals *);

typedef ggml_backend_buffer_type_t (*tail_buft_t)(ggml_backend_dev_t);

template <typename F> static F proc_of(ggml_backend_dev_t dev, const char * name) {
    ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    return reg ? (F) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}

ggml_backend_buffer_type_t rkv_tail_buffer_type(ggml_backend_dev_t dev) {
    const auto named = proc_of<tail_buft_t>(dev, RKV_TAIL_BUFT_PROC);
    return named ? named(dev) : ggml_backend_cpu_buffer_type();
}

bool rkv_dev_gathers(ggml_backend_dev_t dev) {
    return proc_of<void *>(dev, RKV_GATHER_PROC) != nullptr;
}

// The tails of the layers that `dev` computes.
static rkv_staging_need need_of(ggml_backend_dev_t dev, const llama_model & model, uint32_t tile, const llama_memory_i * memory) {
    rkv_staging_need need = {};
    need.tile_cells = tile;
    for (const llama_kv_cache * cache : rkv_memory_caches(memory)) {
        cache->rkv_visit([&](const rkv_layer_view & view) {
            const ggml_tensor * k = view.all_in_tail ? view.k : view.tail->k;
            const ggml_tensor * v = view.all_in_tail ? view.v : view.tail->v;
            if (!k || model.dev_layer(view.il) != dev) {
                return;
            }
            need.k_row_bytes = std::max<uint64_t>(need.k_row_bytes, k->nb[1]);
            need.v_row_bytes = std::max<uint64_t>(need.v_row_bytes, v ? v->nb[1] : 0);
            need.cells_layer = std::max<uint64_t>(need.cells_layer, k->ne[1]);
            need.cells_all  += uint64_t(k->ne[1])*k->ne[2];
        });
    }
    return need;
}

static const rkv_host_engine_api * host_engine() {
    const auto get = proc_of<const rkv_host_engine_api * (*)()>(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), RKV_HOST_ENGINE_PROC);
    return get ? get() : nullptr;
}

static void log_choice(ggml_backend_dev_t dev, const rkv_staging_params & asked, const rkv_staging_totals & t) {
    LLAMA_LOG_INFO("rolling-kv: %s: link %.2f GB/s and %.1f us as measured; ring of %u slots (%s) of %.2f MiB, %u cells a copy (%s), %.2f MiB on the device\n",
            ggml_backend_dev_name(dev), t.link_bytes_s/1e9, t.link_latency_s*1e6, (unsigned) t.depth, asked.depth ? "asked for" : "chosen",
            t.slot_bytes/1024.0/1024.0, (unsigned) t.copy_cells, asked.copy_cells ? "asked for" : "chosen", t.device_bytes/1024.0/1024.0);
}

// In order tiled no bit may depend on where a tile lies, nor on how a tail is shared, which is measured anew in every run.
static rkv_staging_params params_for(ggml_backend_dev_t dev, const rkv_attn_config & config, bool has_tail) {
    rkv_staging_params params = config.staging;
    if (params.engine == RKV_TAIL_ENGINE_AUTO && config.tiled && !proc_of<void *>(dev, RKV_HOST_BITS_PROC)) {
        params.engine = RKV_TAIL_ENGINE_STREAM;
        if (has_tail) {
            LLAMA_LOG_INFO("rolling-kv: %s: order tiled: the device attends to its tail by itself, for partials of the host have other bits; --kv-tail-engine hybrid "
                    "shares it all the same\n", ggml_backend_dev_name(dev));
        }
    }
    return params;
}

void rkv_staging_set(const std::vector<ggml_backend_t> & backends, const llama_model & model, const rkv_attn_config & config,
        const llama_memory_i * memory) {
    if (config.tile == 0 || !memory || model.hparams.no_alloc) {
        return;
    }
    for (ggml_backend_t backend : backends) {
        ggml_backend_dev_t dev = ggml_backend_get_device(backend);
        const auto set = proc_of<set_t>(dev, RKV_STAGING_SET_PROC);
        const auto get = proc_of<totals_t>(dev, RKV_STAGING_TOTALS_PROC);
        if (!set || !get) {
            continue;
        }
        rkv_staging_need need = need_of(dev, model, config.tile, memory);
        need.host = host_engine();
        const rkv_staging_params params = params_for(dev, config, need.cells_all > 0);
        if (!set(backend, &params, &need)) {
            throw std::runtime_error(format("rolling-kv: failed to allocate the slots of the staging ring on device %s; make the window smaller, or "
                        "give a lower --kv-ring-depth", ggml_backend_dev_name(dev)));
        }
        if (need.cells_all > 0) {
            rkv_staging_totals totals = {};
            get(backend, &totals);
            log_choice(dev, config.staging, totals);
        }
    }
}

static void add(rkv_staging_totals & sum, const rkv_staging_totals & one) {
    sum.link_bytes_s     = std::max(sum.link_bytes_s, one.link_bytes_s);
    sum.link_latency_s   = std::max(sum.link_latency_s, one.link_latency_s);
    sum.copy_cells       = std::max(sum.copy_cells, one.copy_cells);
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
    sum.idle_ns         += one.idle_ns;
    sum.graph_launches  += one.graph_launches;
    sum.device_ns       += one.device_ns;
    sum.host_steps      += one.host_steps;
    sum.host_tiles      += one.host_tiles;
    sum.host_bytes      += one.host_bytes;
    sum.host_down       += one.host_down;
    sum.host_up         += one.host_up;
    sum.host_wait_ns    += one.host_wait_ns;
    sum.host_changes    += one.host_changes;
    sum.host_bytes_s     = std::max(sum.host_bytes_s, one.host_bytes_s);
    sum.host_share       = std::max(sum.host_share, one.host_share);
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

bool rkv_link_totals_get(ggml_backend_dev_t dev, struct rkv_link_totals * totals) {
    *totals = {};
    const auto get = proc_of<link_totals_t>(dev, RKV_LINK_TOTALS_PROC);
    if (get) {
        get(dev, totals);
    }
    return get != nullptr;
}
