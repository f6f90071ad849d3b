#pragma once

// One layer's cache in two parts: the window (stock's own tensors, made shorter) and the tail in host memory.
//
// A layer whose window holds every cell, or none, is not split: its one tensor has every cell, on the device or in host
// memory, and all of stock's code is right for it as it stands.

#include "rkv-attn-node.h"
#include "rkv-local.h"
#include "rkv-residency.h"
#include "rkv-rope-seen.h"
#include "rkv-step.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct llama_hparams;
class llama_io_read_i;
class llama_io_write_i;

// What a cache tells devices about its next step; all layers of a cache share one.
struct rkv_step_state {
    rkv_step                     step = {};
    std::vector<rkv_step_stream> streams; // [n_stream]
};

// The tail of one layer. Part of a cache's layer; empty when the layer is not split.
struct rkv_tail {
    ggml_tensor * k = nullptr; // [n_embd_k_gqa, kv_size - window, n_stream]
    ggml_tensor * v = nullptr; // [n_embd_v_gqa, kv_size - window, n_stream]; NULL where V is a view of K

    std::vector<ggml_tensor *> k_stream; // one view a stream
    std::vector<ggml_tensor *> v_stream;

    std::shared_ptr<rkv_layer_counters> counters; // set for every layer of a cache that has a residency
    std::shared_ptr<rkv_step_state>     step;     // the same
    std::shared_ptr<rkv_local>          local;    // set for local layers; all of a cache share one
    std::shared_ptr<rkv_rope_seen>      rope;     // set for every layer of a context that has a residency

    bool all_in_tail = false; // the window is 0: stock's own tensors lie in host memory
    bool tiled       = false; // the context runs in order tiled
    bool guarded     = false; // its cells may not be moved while some lie in a tail

    bool split() const { return k != nullptr; }
};

// One layer of a cache as rolling-kv's reports see it.
struct rkv_layer_view {
    uint32_t         il;
    ggml_tensor *    k;
    ggml_tensor *    v; // NULL where V is a view of K
    const rkv_tail * tail;
    bool             all_in_tail;
};

// What a cache's constructor needs for one layer.
struct rkv_layer_plan {
    uint32_t                   window;    // cells of stock's own tensors
    uint32_t                   tail;      // cells of the tail
    ggml_backend_buffer_type_t buft;      // of stock's own tensors
    ggml_backend_buffer_type_t buft_tail; // host memory
    ggml_type                  tail_k;    // types of rows in host memory
    ggml_type                  tail_v;

    // Type of stock's own tensor, which without a plan has `type`.
    ggml_type type_k(ggml_type type) const { return tail == 0 && buft_tail ? tail_k : type; }
    ggml_type type_v(ggml_type type) const { return tail == 0 && buft_tail ? tail_v : type; }
};

// The split of one cache: which layer gets which window. Made at the top of the constructor.
class rkv_split {
public:
    // row_bytes(il) is the bytes of K and V of one cell of layer `il` over all streams, or 0 for a layer that this cache does not hold.
    rkv_split(bool sliding, bool named, bool v_trans, bool shared, uint32_t kv_size, uint32_t n_layer,
            const std::function<uint64_t(uint32_t)> & row_bytes, const std::function<ggml_backend_dev_t(uint32_t)> & dev_layer);

    // `dev` computes the layer; `buft` is where stock would put it. A local layer's window is the rows that it keeps.
    rkv_layer_plan plan(uint32_t il, uint32_t kv_size, ggml_backend_buffer_type_t buft, ggml_backend_dev_t dev) const;

    using ctx_for_buft_t = std::function<ggml_context *(ggml_backend_buffer_type_t)>;

    // Makes the tail of layer `il` beside its window tensors `k` and `v` (which may be NULL), and marks `k` with the layer's counters.
    rkv_tail make_tail(const ctx_for_buft_t & ctx_for_buft, const rkv_layer_plan & plan, ggml_tensor * k, const ggml_tensor * v, uint32_t il) const;

private:
    const rkv_residency * residency; // NULL: this cache is not split
    std::vector<uint32_t> window;    // [n_layer]
    std::vector<bool>     is_local;  // [n_layer]

    std::shared_ptr<rkv_step_state> step = std::make_shared<rkv_step_state>();
    std::shared_ptr<rkv_local>      local; // NULL: no layer is local
};

// `buf` is what the allocation of a cache's buffer gave. Throws with the sizes when it could not be allocated and the context has a
// residency; asks for large pages when it could.
void rkv_check_buffer(ggml_backend_buffer_t buf, ggml_backend_buffer_type_t buft, ggml_context * ctx);

// View of the first n_kv cells of one part's or both parts' K or V, as stock's get_k and get_v give it; the tail's view hangs on
// src[1] of the window's view. Of a local layer: its rows, with their mask on src[2]. NULL when the layer is neither.
struct rkv_part_shape {
    int64_t  n_embd_head;
    int64_t  n_head_kv;
    uint32_t n_kv;     // cells over both parts
    uint32_t n_stream; // streams of the view
    uint32_t stream0;
};
ggml_tensor * rkv_get_part(ggml_context * ctx, ggml_tensor * window, const rkv_tail & of_layer, ggml_tensor * tail, const rkv_part_shape & shape);

// The counters of the layer that `view` (of its K) belongs to, or NULL.
rkv_layer_counters * rkv_counters_of(const ggml_tensor * view);

// The step of the cache that `view` belongs to, or NULL.
const rkv_step * rkv_step_of(const ggml_tensor * view);

// Whether a step was noted before.
inline bool rkv_step_was_noted(const std::vector<rkv_step_stream> & streams) {
    return std::any_of(streams.begin(), streams.end(), [](const rkv_step_stream & s) { return s.live_end > 0; });
}

// Notes which cells the next step writes, and which are in use. `sinfo` is the cache's slot_info, `v_cells` its cells by stream.
template <typename Layers, typename SlotInfo, typename Cells>
void rkv_step_note(const Layers & layers, const SlotInfo & sinfo, const Cells & v_cells) {
    if (layers.empty() || !layers.front().tail.step) {
        return;
    }
    auto & streams = layers.front().tail.step->streams;
    if (rkv_fault_get() == RKV_FAULT_STEP_FROZEN && rkv_step_was_noted(streams)) {
        return;
    }
    for (size_t s = 0; s < streams.size(); ++s) {
        streams[s] = { 0, 0, v_cells[s].used_max_p1() };
    }
    for (size_t s = 0; s < sinfo.strm.size(); ++s) {
        const auto & idxs = sinfo.idxs[s];
        const auto [first, last] = std::minmax_element(idxs.begin(), idxs.end());
        if (first != idxs.end()) {
            streams[sinfo.strm[s]].written_begin = *first;
            streams[sinfo.strm[s]].written_end   = *last + 1;
        }
    }
}

// The tail's view that hangs on a window's view, or NULL.
ggml_tensor * rkv_view_tail(const ggml_tensor * view);

// Node that stores `cur` [n_embd, n_tokens] by the indices of the whole cache. NULL when the layer is neither split nor local.
ggml_tensor * rkv_cpy_part(ggml_context * ctx, ggml_tensor * window, const rkv_tail & of_layer, ggml_tensor * tail, ggml_tensor * cur, ggml_tensor * idxs);

// Copies stream `src` of a tail to stream `dst`; of a local layer, what its rows hold.
void rkv_copy_stream(const rkv_tail & tail, uint32_t src, uint32_t dst);

// Bytes of one part's tail; 0 when there is none.
size_t rkv_nbytes(const ggml_tensor * tail);

// Rows [from, to) of a layer's cells, in file order, whatever part they lie in. False when the layer is neither split nor local.
using rkv_ranges = std::vector<std::pair<uint32_t, uint32_t>>;
struct rkv_rows {
    ggml_tensor *    window; // of one stream
    ggml_tensor *    tail;   // the same, or NULL
    const rkv_tail & of_layer;
    uint32_t         stream;
    size_t           row_bytes;
};
bool rkv_write_rows(llama_io_write_i & io, const rkv_rows & rows, const rkv_ranges & ranges);
bool rkv_read_ranges(llama_io_read_i & io, const rkv_rows & rows, const rkv_ranges & ranges, const std::function<int32_t(uint32_t)> & pos_of);
bool rkv_clear_rows(const rkv_rows & rows, const std::vector<uint32_t> & cells);

// The same for any list of runs with members `from` and `to`, of a stream with these cells.
template <typename Runs, typename Cells>
bool rkv_read_rows(llama_io_read_i & io, const rkv_rows & rows, const Runs & runs, const Cells & cells) {
    rkv_ranges ranges;
    for (const auto & run : runs) {
        ranges.emplace_back(run.from, run.to);
    }
    return rkv_read_ranges(io, rows, ranges, [&](uint32_t cell) { return int32_t(cells.pos_get(cell)); });
}

// True when some layer has a tail, or lies in host memory as a whole.
template <typename Layers>
bool rkv_any_split(const Layers & layers) {
    for (const auto & layer : layers) {
        if (layer.tail.split()) {
            return true;
        }
    }
    return false;
}

// Bytes of K and V of one cell of a layer over all streams; 0 for a layer that a cache with this filter does not hold.
std::function<uint64_t(uint32_t)> rkv_row_bytes(const llama_hparams & hparams, ggml_type type_k, ggml_type type_v, uint32_t n_stream,
        const std::function<bool(int32_t)> & filter);

// The device that computes a layer.
std::function<ggml_backend_dev_t(uint32_t)> rkv_dev_layer(const llama_model & model);
