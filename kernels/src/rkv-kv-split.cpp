#include "rkv-kv-split.h"

#include "rkv-pages.h"
#include "rkv-planner.h"
#include "rkv-set-rows.h"
#include "rkv-staging.h"

#include "llama-hparams.h"
#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace {

uint64_t free_bytes(ggml_backend_dev_t dev) {
    size_t free  = 0;
    size_t total = 0;
    ggml_backend_dev_memory(dev, &free, &total);
    return free;
}

bool is_host(ggml_backend_dev_t dev) {
    return ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

// What a device wants for the longest of its layers with every cell, if it puts them next to each other for a long batch.
uint64_t gathered_bytes(ggml_backend_dev_t dev, uint32_t kv_size, uint32_t n_layer, const std::function<uint64_t(uint32_t)> & row_bytes,
        const std::function<ggml_backend_dev_t(uint32_t)> & dev_layer) {
    uint64_t longest = 0;
    for (uint32_t il = 0; il < n_layer && rkv_dev_gathers(dev); ++il) {
        longest = std::max(longest, dev_layer(il) == dev ? row_bytes(il) : 0);
    }
    return longest*kv_size;
}

// What the windows of layers on cards may take where nothing was asked for.
uint64_t free_budget(const rkv_residency & residency, uint32_t kv_size, uint32_t n_layer, const std::function<uint64_t(uint32_t)> & row_bytes,
        const std::function<ggml_backend_dev_t(uint32_t)> & dev_layer) {
    std::vector<ggml_backend_dev_t> devs;
    uint64_t res = 0;
    for (uint32_t il = 0; il < n_layer; ++il) {
        ggml_backend_dev_t dev = dev_layer(il);
        if (row_bytes(il) > 0 && !is_host(dev) && std::find(devs.begin(), devs.end(), dev) == devs.end()) {
            devs.push_back(dev);
            const uint64_t usable   = rkv::usable_bytes(free_bytes(dev), residency.params.reserve_bytes);
            const uint64_t gathered = gathered_bytes(dev, kv_size, n_layer, row_bytes, dev_layer);
            res += usable > gathered ? usable - gathered : 0;
        }
    }
    return res;
}

uint64_t auto_budget(const rkv_residency & residency, uint32_t kv_size, uint32_t n_layer, const std::function<uint64_t(uint32_t)> & row_bytes,
        const std::function<ggml_backend_dev_t(uint32_t)> & dev_layer) {
    const uint64_t target = residency.params.vram_target;
    const uint64_t bytes  = target > 0 ? target : free_budget(residency, kv_size, n_layer, row_bytes, dev_layer);
    return bytes > residency.beside_bytes ? bytes - residency.beside_bytes : 0;
}

// FNV-1a, 32 bits.
uint32_t digest_of(const rkv_local & local, const std::vector<bool> & layers) {
    uint32_t res = 2166136261u;
    const auto add = [&](uint32_t value) { res = (res ^ value)*16777619u; };
    add(local.first);
    add(local.cells);
    add(local.ring);
    for (size_t il = 0; il < layers.size(); ++il) {
        if (layers[il]) {
            add(uint32_t(il) + 1);
        }
    }
    return res ? res : 1;
}

} // namespace

rkv_split::rkv_split(bool sliding, bool named, bool v_trans, bool shared, uint32_t kv_size, uint32_t n_layer,
        const std::function<uint64_t(uint32_t)> & row_bytes, const std::function<ggml_backend_dev_t(uint32_t)> & dev_layer)
    : residency(sliding || named || shared ? nullptr : rkv_residency_scope::current()), window(n_layer, kv_size) {
    if (!residency) {
        return;
    }
    if (v_trans) {
        throw std::runtime_error("rolling-kv: a window needs flash attention, which is off; turn it on, or drop the window");
    }

    const uint32_t tile = residency->params.tile_cells;
    is_local.resize(n_layer);
    for (uint32_t il = 0; il < n_layer; ++il) {
        is_local[il] = residency->is_local(il) && row_bytes(il) > 0;
    }
    if (std::find(is_local.begin(), is_local.end(), true) != is_local.end()) {
        local = std::make_shared<rkv_local>();
        local->first = residency->params.local_first;
        local->cells = residency->params.local_cells;
        local->ring  = residency->local_ring;
        local->alibi = residency->alibi;
        local->digest = digest_of(*local, is_local);
    }

    // Without a target what counts is the memory of cards: window and tail of other layers lie in the same memory, and nothing is gained
    // by a split.
    const bool by_free = residency->params.window_cells == RKV_WINDOW_AUTO && residency->params.vram_target == 0;
    const auto is_free = [&](uint32_t il) { return by_free && row_bytes(il) > 0 && is_host(dev_layer(il)); };

    // layers that ask for their own window come off the budget first
    uint64_t fixed   = 0;
    uint64_t row_sum = 0;
    for (uint32_t il = 0; il < n_layer; ++il) {
        const int64_t own = residency->layer_window[il];
        if (is_free(il)) {
            continue;
        }
        if (is_local[il]) {
            fixed += row_bytes(il)*local->rows();
        } else if (own == RKV_WINDOW_DEFAULT || own == RKV_WINDOW_AUTO) {
            row_sum += row_bytes(il);
        } else {
            fixed += row_bytes(il)*(own == RKV_WINDOW_RESIDENT ? kv_size : std::min<uint64_t>(own, kv_size));
        }
    }

    int64_t common = residency->params.window_cells;
    if (by_free && residency->measured_only) {
        common = tile;
    } else if (common == RKV_WINDOW_AUTO) {
        common = rkv::fit_window({ auto_budget(*residency, kv_size, n_layer, row_bytes, dev_layer), fixed, row_sum, kv_size, tile });
    } else if (common == RKV_WINDOW_RESIDENT) {
        common = kv_size;
    }

    for (uint32_t il = 0; il < n_layer; ++il) {
        int64_t own = residency->layer_window[il];
        if (own == RKV_WINDOW_DEFAULT || own == RKV_WINDOW_AUTO) {
            own = is_free(il) ? kv_size : common;
        } else if (own == RKV_WINDOW_RESIDENT) {
            own = kv_size;
        }
        window[il] = uint32_t(std::min<int64_t>(own, kv_size));
    }
}

rkv_layer_plan rkv_split::plan(uint32_t il, uint32_t kv_size, ggml_backend_buffer_type_t buft, ggml_backend_dev_t dev) const {
    rkv_layer_plan res = { kv_size, 0, buft, nullptr, GGML_TYPE_COUNT, GGML_TYPE_COUNT };
    if (residency && is_local[il]) {
        res.window = local->rows();
        return res;
    }
    if (!residency || window[il] >= kv_size) {
        return res;
    }

    res.tail_k    = residency->tail_k;
    res.tail_v    = residency->tail_v;
    res.buft_tail = rkv_tail_buffer_type(dev);
    if (!ggml_backend_dev_supports_buft(dev, res.buft_tail)) {
        throw std::runtime_error(format("rolling-kv: device %s cannot read host memory of type %s; use another device, or drop the window",
                    ggml_backend_dev_name(dev), ggml_backend_buft_name(res.buft_tail)));
    }

    if (window[il] == 0) {
        res.buft = res.buft_tail; // every cell in host memory: one part, so nothing to split
        return res;
    }

    res.window = window[il];
    res.tail   = kv_size - window[il];
    return res;
}

rkv_tail rkv_split::make_tail(const ctx_for_buft_t & ctx_for_buft, const rkv_layer_plan & plan, ggml_tensor * k, const ggml_tensor * v, uint32_t il) const {
    rkv_tail res;
    if (const rkv_residency * active = rkv_residency_scope::current()) {
        res.tiled   = active->params.order == RKV_ORDER_TILED;
        res.guarded = active->params.shift == RKV_SHIFT_GUARD;
        res.rope    = std::make_shared<rkv_rope_seen>();
        const rkv_rope_seen * rope = res.rope.get();
        memcpy(&k->op_params[RKV_LEAF_PARAM_ROPE], &rope, sizeof(rope)); // a leaf has no use for op_params of its own
    }
    if (!residency) {
        return res;
    }
    res.counters = std::make_shared<rkv_layer_counters>();
    const rkv_layer_counters * counters = res.counters.get();
    memcpy(&k->op_params[RKV_OP_PARAM_COUNTERS], &counters, sizeof(counters));

    if (is_local[il]) {
        res.local = local;
        local->streams.assign(k->ne[2], std::vector<rkv_local_row>(local->rows()));
        local->row_of_cell.resize(k->ne[2]);
    }

    step->streams.resize(k->ne[2]);
    step->step = { uint32_t(step->streams.size()), step->streams.data() };
    res.step = step;
    const rkv_step * of_cache = res.local ? nullptr : &step->step; // it tells of cells, and these are rows
    memcpy(&k->op_params[RKV_OP_PARAM_STEP], &of_cache, sizeof(of_cache));

    res.all_in_tail = plan.tail == 0 && plan.buft_tail != nullptr;
    res.counters->all_in_tail = res.all_in_tail;
    if (plan.tail == 0) {
        return res;
    }

    ggml_context * ctx = ctx_for_buft(plan.buft_tail);
    if (!ctx) {
        throw std::runtime_error("rolling-kv: failed to create the ggml context of the tail");
    }

    const auto make = [&](const ggml_tensor * part, ggml_type type, const char * name, std::vector<ggml_tensor *> & streams) -> ggml_tensor * {
        if (!part) {
            streams.assign(k->ne[2], nullptr);
            return nullptr;
        }
        ggml_tensor * t = ggml_new_tensor_3d(ctx, type, part->ne[0], plan.tail, part->ne[2]);
        ggml_format_name(t, "cache_%s_tail_l%d", name, (int) il);
        for (int64_t s = 0; s < t->ne[2]; ++s) {
            streams.push_back(ggml_view_2d(ctx, t, t->ne[0], t->ne[1], t->nb[1], s*t->nb[2]));
        }
        return t;
    };

    res.k = make(k, plan.tail_k, "k", res.k_stream);
    res.v = make(v, plan.tail_v, "v", res.v_stream);
    return res;
}

// A pointer that make_tail left on the base tensor of a view.
template <typename T>
static T * left_on_base(const ggml_tensor * view, int param) {
    const ggml_tensor * base = view->view_src;
    if (!base || base->op != GGML_OP_NONE) {
        return nullptr;
    }
    T * res;
    memcpy(&res, &base->op_params[param], sizeof(res));
    return res;
}

rkv_layer_counters * rkv_counters_of(const ggml_tensor * view) {
    return left_on_base<rkv_layer_counters>(view, RKV_OP_PARAM_COUNTERS);
}

const rkv_step * rkv_step_of(const ggml_tensor * view) {
    return left_on_base<const rkv_step>(view, RKV_OP_PARAM_STEP);
}

void rkv_check_buffer(ggml_backend_buffer_t buf, ggml_backend_buffer_type_t buft, ggml_context * ctx) {
    if (!rkv_residency_scope::current()) {
        return;
    }
    if (buf) {
        rkv_ask_huge_pages(buf);
        return;
    }
    size_t bytes = 0;
    bool   tail  = false;
    for (ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
        bytes += t->view_src ? 0 : ggml_nbytes(t);
        tail   = tail || std::string(t->name).find("_tail_") != std::string::npos;
    }
    throw std::runtime_error(format("rolling-kv: failed to allocate %.2f MiB of %s for the %s of the KV cache; %s", bytes/1024.0/1024.0, ggml_backend_buft_name(buft),
                tail ? "tail" : "window", tail ? "make the context smaller, or the window larger" : "make the window smaller"));
}

std::function<uint64_t(uint32_t)> rkv_row_bytes(const llama_hparams & hparams, ggml_type type_k, ggml_type type_v, uint32_t n_stream,
        const std::function<bool(int32_t)> & filter) {
    return [=, &hparams](uint32_t il) -> uint64_t {
        if (!hparams.has_kv(il) || (filter && !filter(il))) {
            return 0;
        }
        const uint64_t k = ggml_row_size(type_k, hparams.n_embd_k_gqa(il));
        const uint64_t v = hparams.is_mla() ? 0 : ggml_row_size(type_v, hparams.n_embd_v_gqa(il));
        return (k + v)*n_stream;
    };
}

std::function<ggml_backend_dev_t(uint32_t)> rkv_dev_layer(const llama_model & model) {
    return [&model](uint32_t il) { return model.dev_layer(il); };
}
