#include "rkv-report.h"

#include "rkv-kv-split.h"
#include "rkv-residency-api.h"

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

#include <algorithm>

namespace {

struct layer_entry {
    const llama_kv_cache * cache;
    bool                   sliding;
    rkv_layer_view         view;
};

std::vector<layer_entry> layer_entries(const llama_memory_i * memory) {
    std::vector<layer_entry> res;
    const auto caches = rkv_memory_caches(memory);
    for (size_t i = 0; i < caches.size(); ++i) {
        caches[i]->rkv_visit([&](const rkv_layer_view & view) {
            res.push_back({ caches[i], i > 0, view });
        });
    }
    return res;
}

rkv_layer_residency describe(const layer_entry & entry) {
    const auto & view = entry.view;

    rkv_layer_residency res = {};
    res.layer        = view.il;
    res.sliding      = entry.sliding;
    res.kv_size      = entry.cache->get_size();
    res.window_cells = view.all_in_tail ? 0 : view.k->ne[1];
    res.n_stream     = view.k->ne[2];
    res.local        = view.tail->local != nullptr;
    res.local_first  = res.local ? view.tail->local->first : 0;
    res.local_cells  = res.local ? view.tail->local->cells : 0;

    const uint64_t own = ggml_nbytes(view.k) + rkv_nbytes(view.v);
    (view.all_in_tail ? res.host_bytes : res.device_bytes) += own;
    res.host_bytes += rkv_nbytes(view.tail->k) + rkv_nbytes(view.tail->v);
    if (view.tail->counters) {
        res.counters = *view.tail->counters;
    }
    return res;
}

struct cell_place {
    ggml_tensor * part = nullptr;
    uint64_t      row  = 0;
    rkv_part      kind = RKV_PART_NONE;
};

cell_place place_of(const llama_context * ctx, uint32_t i, bool value, uint32_t stream, uint32_t cell) {
    const auto entries = layer_entries(llama_get_memory(ctx));
    if (i >= entries.size()) {
        return {};
    }
    const auto &  view   = entries[i].view;
    ggml_tensor * window = value ? view.v : view.k;
    ggml_tensor * tail   = value ? view.tail->v : view.tail->k;
    if (!window || stream >= window->ne[2] || cell >= entries[i].cache->get_size()) {
        return {};
    }
    if (view.tail->local) {
        const int64_t row = view.tail->local->find(stream, cell);
        return row < 0 ? cell_place{} : cell_place{ window, uint64_t(stream*window->ne[1] + row), RKV_PART_WINDOW };
    }
    if (cell < window->ne[1]) {
        return { window, uint64_t(stream*window->ne[1] + cell), view.all_in_tail ? RKV_PART_TAIL : RKV_PART_WINDOW };
    }
    return { tail, uint64_t(stream*tail->ne[1] + cell - window->ne[1]), RKV_PART_TAIL };
}

} // namespace

bool rkv_memory_is_known(const llama_memory_i * memory) {
    return typeid(*memory) == typeid(llama_kv_cache) || typeid(*memory) == typeid(llama_kv_cache_iswa) ||
           typeid(*memory) == typeid(llama_memory_hybrid) || typeid(*memory) == typeid(llama_memory_hybrid_iswa) ||
           typeid(*memory) == typeid(llama_memory_recurrent);
}

std::vector<llama_kv_cache *> rkv_memory_caches(const llama_memory_i * memory) {
    if (const auto * kv = dynamic_cast<const llama_kv_cache *>(memory)) {
        return { const_cast<llama_kv_cache *>(kv) };
    }
    if (const auto * iswa = dynamic_cast<const llama_kv_cache_iswa *>(memory)) {
        return { iswa->get_base(), iswa->get_swa() };
    }
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(memory)) {
        return { hybrid->get_mem_attn() };
    }
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid_iswa *>(memory)) {
        return { hybrid->get_mem_attn()->get_base(), hybrid->get_mem_attn()->get_swa() };
    }
    return {};
}

void llama_kv_cache::rkv_visit(const std::function<void(const rkv_layer_view &)> & fn) const {
    for (const auto & layer : layers) {
        rkv_layer_view view;
        view.il          = layer.il;
        view.k           = layer.k;
        view.v           = layer.v;
        view.tail        = &layer.tail;
        view.all_in_tail = layer.tail.all_in_tail;
        fn(view);
    }
}

void rkv_residency_log(const rkv_residency & residency, const llama_memory_i * memory) {
    uint64_t device = 0;
    uint64_t host   = 0;
    uint32_t n_split = 0;
    uint32_t n_local = 0;
    uint32_t window_min = UINT32_MAX;
    uint32_t window_max = 0;
    uint32_t kv_size = 0;
    const auto entries = memory ? layer_entries(memory) : std::vector<layer_entry>();
    for (const auto & entry : entries) {
        const auto layer = describe(entry);
        device += layer.device_bytes;
        host   += layer.host_bytes;
        n_local += layer.local;
        if (!layer.sliding && !layer.local) {
            n_split   += layer.window_cells < layer.kv_size;
            window_min = std::min(window_min, layer.window_cells);
            window_max = std::max(window_max, layer.window_cells);
            kv_size    = layer.kv_size;
        }
    }

    const std::string range = window_min == window_max ? format("%u", window_max) : format("%u to %u", entries.empty() ? 0 : window_min, window_max);
    LLAMA_LOG_INFO("rolling-kv: window %s of %u cells, %u of %zu layers with a tail, order %s, tiles of %u cells; KV cache %.2f MiB on the device, %.2f MiB in host memory\n",
            range.c_str(), kv_size, n_split, entries.size(), residency.params.order == RKV_ORDER_TILED ? "tiled" : "auto", residency.params.tile_cells,
            device/1024.0/1024.0, host/1024.0/1024.0);
    if (n_local > 0) {
        LLAMA_LOG_WARN("rolling-kv: %u layers are local: they see the first %u and the newest %u tokens only, which changes what the model says\n",
                n_local, residency.params.local_first, residency.params.local_cells);
    }
}

void rkv_residency_info_get(const llama_context * ctx, struct rkv_residency_info * info) {
    const auto & config = ctx->get_cparams().rkv;
    info->active     = config.tile != 0;
    info->tiled      = config.tiled;
    info->tile_cells = config.tile;
    info->n_layers   = layer_entries(llama_get_memory(ctx)).size();
}

bool rkv_residency_layer_get(const llama_context * ctx, uint32_t i, rkv_layer_residency * layer) {
    const auto entries = layer_entries(llama_get_memory(ctx));
    if (i >= entries.size()) {
        return false;
    }
    *layer = describe(entries[i]);
    return true;
}

uint64_t rkv_cell_bytes(const llama_context * ctx, uint32_t i, bool value) {
    const auto entries = layer_entries(llama_get_memory(ctx));
    if (i >= entries.size()) {
        return 0;
    }
    const ggml_tensor * part = value ? entries[i].view.v : entries[i].view.k;
    return part ? part->nb[1] : 0;
}

rkv_part rkv_cell_read(llama_context * ctx, uint32_t i, bool value, uint32_t stream, uint32_t cell, void * row) {
    const cell_place place = place_of(ctx, i, value, stream, cell);
    if (place.part) {
        llama_synchronize(ctx);
        ggml_backend_tensor_get(place.part, row, place.row*place.part->nb[1], place.part->nb[1]);
    }
    return place.kind;
}

rkv_part rkv_cell_write(llama_context * ctx, uint32_t i, bool value, uint32_t stream, uint32_t cell, const void * row) {
    const cell_place place = place_of(ctx, i, value, stream, cell);
    if (place.part) {
        llama_synchronize(ctx);
        ggml_backend_tensor_set(place.part, row, place.row*place.part->nb[1], place.part->nb[1]);
    }
    return place.kind;
}
