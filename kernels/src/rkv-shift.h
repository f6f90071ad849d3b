#pragma once

// Moving cells of a cache to other positions: whether it can be done, and doing it in both parts of a layer.
//
// A cache turns K as rolling-kv does when some of its cells lie in a tail, or when its context runs in order tiled; then window and
// tail, host and device, spilled and resident give the same bits on one backend. All other caches turn K as stock does.

#include "rkv-kv-split.h"

#include <cstdint>
#include <string>
#include <vector>

class llama_kv_cache;
class llama_context;
struct llama_memory_i;
struct llama_model;

// Whether rolling-kv turns this cache's K.
template <typename Layers>
bool rkv_shift_is_ours(const Layers & layers) {
    for (const auto & layer : layers) {
        if (layer.tail.split() || layer.tail.all_in_tail || layer.tail.tiled) {
            return true;
        }
    }
    return false;
}

// Why the cells of a memory cannot be moved; "" when they can. The one place that decides.
std::string rkv_shift_refusal(const llama_memory_i * memory);

// The same for one cache, without what it shares with another.
std::string rkv_shift_refusal_of(const llama_kv_cache & cache);

// For a call that moves cells: logs why it cannot, if it cannot.
bool rkv_shift_refused(const llama_memory_i * memory, const char * call);

// One layer whose K is to be turned.
struct rkv_shift_layer {
    uint32_t             il;
    ggml_tensor *        k;      // [n_embd_k, window, n_stream]
    ggml_tensor *        tail;   // [n_embd_k, kv_size - window, n_stream] or NULL
    bool                 in_tail; // `k` itself lies in host memory
    rkv_layer_counters * counters;
    const rkv_rope_seen * rope;
};

// Whether no layer of a cache turns K. Stock takes for granted that one does.
bool rkv_shift_turns_nothing(const llama_kv_cache & cache);

// Turns K of `layers`. `moves` [n_stream*kv_size] holds each cell's change of position, 0 for those that stay. Throws
// std::runtime_error when there is no memory for it, before anything was changed.
void rkv_shift_run(llama_context * lctx, const llama_kv_cache & cache, const std::vector<rkv_shift_layer> & layers,
        const std::vector<int32_t> & moves);

// Applies the moves that are queued in a cache's cells. False when the cache is not ours: stock's code does it then.
template <typename Layers, typename Cells>
bool rkv_shift(llama_context * lctx, const llama_kv_cache & cache, const Layers & layers, Cells & v_cells) {
    if (!rkv_shift_is_ours(layers) && !rkv_shift_turns_nothing(cache)) {
        return false;
    }
    std::vector<rkv_shift_layer> list;
    for (const auto & layer : layers) {
        list.push_back({ layer.il, layer.k, layer.tail.k, layer.tail.all_in_tail, layer.tail.counters.get(), layer.tail.rope.get() });
    }
    std::vector<int32_t> moves;
    for (const auto & cells : v_cells) {
        for (uint32_t i = 0; i < cells.size(); ++i) {
            moves.push_back(cells.is_empty(i) ? 0 : cells.get_shift(i));
        }
    }
    rkv_shift_run(lctx, cache, list, moves);
    for (auto & cells : v_cells) {
        cells.reset_shift();
    }
    return true;
}

// Divides the position of a cell. llama_kv_cells::pos_div queues the move with the wrong sign.
template <typename Cells>
void rkv_pos_div(Cells & cells, uint32_t i, int d) {
    cells.pos_add(i, cells.pos_get(i)/d - cells.pos_get(i));
}
