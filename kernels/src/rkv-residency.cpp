#include "rkv-residency.h"

#include "rkv-tail-type.h"

#include "rkv-local.h"
#include "rkv-report.h"

#include "llama-cparams.h"
#include "llama-impl.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {

thread_local const rkv_residency * g_current = nullptr;

[[noreturn]] void refuse(const std::string & why) {
    throw std::runtime_error("rolling-kv: " + why);
}

// A window forced from outside, for test programs that have no options of their own: "128" or "128,tiled".
// It goes to contexts that could have one: a test program may also make some whose tensors are split over devices.
void apply_forced(rkv_params & params, const llama_model & model) {
    const char * forced = getenv("ROLLING_KV_FORCE_WINDOW");
    if (!forced || params.mode != RKV_MODE_OFF || model.split_mode() == LLAMA_SPLIT_MODE_TENSOR) {
        return;
    }
    params.mode         = RKV_MODE_WINDOW;
    params.window_cells = strtoll(forced, nullptr, 10);
    params.order        = strstr(forced, "tiled") ? RKV_ORDER_TILED : RKV_ORDER_AUTO;

    const char * depth    = getenv("ROLLING_KV_FORCE_DEPTH");
    const char * schedule = getenv("ROLLING_KV_FORCE_SCHEDULE");
    params.staging.depth    = depth ? strtoul(depth, nullptr, 10) : 0;
    params.staging.schedule = schedule && strcmp(schedule, "op") == 0 ? RKV_SCHEDULE_OP : RKV_SCHEDULE_AUTO;

    const char * tile = getenv("ROLLING_KV_FORCE_TILE");
    params.tile_cells = tile ? strtoul(tile, nullptr, 10) : RKV_TILE_MIN;
}

int64_t whole_tiles(int64_t cells, uint32_t tile) {
    return cells < 0 ? cells : cells/tile*tile;
}

void check_window(int64_t cells, const char * what) {
    if (cells < RKV_WINDOW_DEFAULT) {
        refuse(format("%s is %lld cells; give 0 or more, or leave it out", what, (long long) cells));
    }
}

// What the base cache has beside it on the devices; the sizes are those of llama_kv_cache_iswa and llama_memory_recurrent.
uint64_t beside_bytes(const llama_model & model, const llama_context_params & cp) {
    const llama_hparams & hparams = model.hparams;

    const uint64_t n_seq     = std::max(1u, cp.n_seq_max);
    const uint64_t n_stream  = cp.kv_unified ? 1 : n_seq;
    const uint64_t n_ctx     = cp.n_ctx ? cp.n_ctx : hparams.n_ctx_train;
    const uint64_t n_ctx_seq = GGML_PAD(n_ctx/n_stream, 256);
    const uint64_t n_ubatch  = std::min<uint64_t>(cp.n_ubatch, n_ctx);
    const uint64_t n_sliding = cp.swa_full ? n_ctx_seq :
        std::min<uint64_t>(n_ctx_seq, GGML_PAD((uint64_t) hparams.n_swa*(cp.kv_unified ? n_seq : 1) + n_ubatch, 256));

    uint64_t res = 0;
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (hparams.is_recr(il)) {
            res += (uint64_t) (hparams.n_embd_r() + hparams.n_embd_s())*sizeof(float)*n_seq;
        } else if (hparams.is_swa(il) && hparams.has_kv(il)) {
            res += (ggml_row_size(cp.type_k, hparams.n_embd_k_gqa(il)) +
                    (hparams.is_mla() ? 0 : ggml_row_size(cp.type_v, hparams.n_embd_v_gqa(il))))*n_sliding*n_stream;
        }
    }
    return res;
}

void check_devices(const llama_model & model, const llama_context_params & params) {
    if (!params.offload_kqv) {
        refuse("a window needs the KV cache on the device; drop --no-kv-offload, or drop the window");
    }
    if (model.split_mode() == LLAMA_SPLIT_MODE_TENSOR) {
        refuse("split mode 'tensor' is not supported with a window; use split mode 'layer'");
    }
    for (uint32_t il = 0; il < model.hparams.n_layer_all; ++il) {
        ggml_backend_dev_t dev = model.dev_layer(il);
        if (!rkv_dev_is_tiled(dev)) {
            refuse(format("device %s of layer %u has no tiled attention; use another device, or drop the window",
                        ggml_backend_dev_name(dev), il));
        }
    }
}

// Reads params.local_layers and checks that the model's cache can be kept by position.
void resolve_local(rkv_residency & res, const llama_model & model, const llama_context_params & cp) {
    auto & params = res.params;
    const llama_hparams & hparams = model.hparams;
    if (params.n_local_layers == 0) {
        return;
    }
    if (!params.local_layers) {
        refuse("the local layers are to be those of a file, and none is given; give --kv-local-file, or name the layers");
    }
    if (params.local_n_layer != 0 && params.local_n_layer != hparams.n_layer()) {
        refuse(format("the local layers were found for a model of %u layers; this one has %u", params.local_n_layer, hparams.n_layer()));
    }
    if (params.local_cells == 0) {
        params.local_cells = RKV_LOCAL_CELLS_DEFAULT;
    }
    if (cp.kv_unified && cp.n_seq_max > 1) {
        refuse("local layers need a buffer of its own for each sequence; make the context with one sequence, or not unified");
    }
    if (hparams.n_pos_per_embd() > 1) {
        refuse(format("local layers keep rows by position, and each token of this model has %u positions; give none", hparams.n_pos_per_embd()));
    }
    if (!hparams.causal_attn || cp.attention_type == LLAMA_ATTENTION_TYPE_NON_CAUSAL) {
        refuse("local layers see the tokens before a token, and this model's attention is not causal; give none");
    }

    res.local_layers.assign(hparams.n_layer_all, false);
    for (size_t i = 0; i < params.n_local_layers; ++i) {
        const uint32_t il = params.local_layers[i];
        if (il >= hparams.n_layer() || !hparams.has_kv(il) || hparams.is_recr(il)) {
            refuse(format("layer %u cannot be local: it has no KV cache of its own", il));
        }
        if (hparams.is_swa(il)) {
            refuse(format("layer %u looks back %u tokens only by the model's own design; do not name it as local", il, hparams.n_swa));
        }
        res.local_layers[il] = true;
    }
    bool whole = false;
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        whole = whole || (hparams.has_kv(il) && !hparams.is_recr(il) && !hparams.is_swa(il) && !res.local_layers[il]);
    }
    if (!whole) {
        refuse("every layer is to be local, so that none would see the whole text; leave some out");
    }
    params.local_layers   = nullptr;
    params.n_local_layers = 0;

    const uint64_t n_ctx   = cp.n_ctx ? cp.n_ctx : hparams.n_ctx_train;
    const uint64_t n_batch = std::min<uint64_t>(n_ctx, std::max(cp.n_batch, cp.n_ubatch));
    res.local_ring = rkv_local_ring(params.local_first, params.local_cells, uint32_t(n_batch));
    res.alibi      = hparams.use_alibi;
}

} // namespace

rkv_params rkv_params_default() {
    rkv_params res = {};
    res.mode         = RKV_MODE_OFF;
    res.order        = RKV_ORDER_AUTO;
    res.window_cells = RKV_WINDOW_AUTO;
    res.local_first  = RKV_LOCAL_FIRST_DEFAULT;
    return res;
}

rkv_residency rkv_residency_resolve(const llama_model & model, const llama_context_params & cp) {
    rkv_residency res;
    res.params = cp.rkv;
    apply_forced(res.params, model);
    if (!res.active()) {
        return res;
    }

    auto & params = res.params;
    if (params.tile_cells == 0) {
        params.tile_cells = RKV_TILE_DEFAULT;
    }
    if (params.tile_cells % RKV_TILE_MIN != 0 || params.tile_cells > RKV_TILE_MAX) {
        refuse(format("a tile is %u cells; give a multiple of %d up to %d", params.tile_cells, RKV_TILE_MIN, RKV_TILE_MAX));
    }
    if (params.staging.host_threads == 0) {
        params.staging.host_threads = uint32_t(std::max(cp.n_threads, 1));
    }
    check_window(params.window_cells, "the window");
    if (cp.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
        refuse("a window needs flash attention, which is off (or not possible for this model); turn it on, or drop the window");
    }
    if (cp.type_k == GGML_TYPE_F32 || cp.type_v == GGML_TYPE_F32) {
        refuse("a cache of f32 is converted to f16 as a whole before attention reads it; use f16, bf16 or a quantised type with a window");
    }
    check_devices(model, cp);

    res.layer_window.assign(model.hparams.n_layer_all, RKV_WINDOW_DEFAULT);
    if (params.n_layer_window > res.layer_window.size()) {
        refuse(format("windows are given for %zu layers; the model has %zu", params.n_layer_window, res.layer_window.size()));
    }
    for (size_t il = 0; il < params.n_layer_window; ++il) {
        check_window(params.layer_window[il], format("the window of layer %zu", il).c_str());
        if (params.layer_window[il] >= 0 && model.hparams.is_swa(il)) {
            refuse(format("layer %zu looks back %u tokens only and stays on the device; give no window for it", il, model.hparams.n_swa));
        }
        res.layer_window[il] = whole_tiles(params.layer_window[il], params.tile_cells);
    }
    params.layer_window   = nullptr;
    params.n_layer_window = 0;
    resolve_local(res, model, cp);
    rkv_tail_type_resolve(res, model, cp);
    res.beside_bytes      = beside_bytes(model, cp);
    res.measured_only     = model.hparams.no_alloc;

    const int64_t asked = params.window_cells;
    params.window_cells = whole_tiles(asked, params.tile_cells);
    if (params.window_cells != asked) {
        LLAMA_LOG_INFO("rolling-kv: the window of %lld cells is rounded down to whole tiles of %u: %lld\n",
                (long long) asked, params.tile_cells, (long long) params.window_cells);
    }

    return res;
}

rkv_attn_config rkv_attn_config_for(const rkv_residency & residency) {
    rkv_attn_config res;
    if (residency.active()) {
        res.tiled = residency.params.order == RKV_ORDER_TILED;
        res.tile  = residency.params.tile_cells;
        res.staging = residency.params.staging;
        res.shift_path = residency.params.shift_path;
    }
    return res;
}

rkv_residency_scope::rkv_residency_scope(const rkv_residency & residency) : previous(g_current) {
    g_current = &residency;
}

rkv_residency_scope::~rkv_residency_scope() {
    g_current = previous;
}

const rkv_residency * rkv_residency_scope::current() {
    return g_current && g_current->active() ? g_current : nullptr;
}

void rkv_memory_check(const llama_model & model, const rkv_residency & residency, const llama_memory_i * memory) {
    if (!residency.active()) {
        return;
    }

    if (memory && !rkv_memory_is_known(memory)) {
        refuse(format("the cache of architecture '%s' is of a kind whose split is not supported; drop the window", model.arch_name().c_str()));
    }

    rkv_residency_log(residency, memory);
}
