#pragma once

// rolling-kv: reading back where a context's cache lies. Part of rkv.h.

#include "llama.h"
#include "rkv-attn-node.h"
#include "rkv-step.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// One layer of one cache of a context.
struct rkv_layer_residency {
    int32_t  layer;           // layer of the model
    uint8_t  sliding;         // 1: of the sliding-window cache, which stays resident
    uint32_t kv_size;         // cells of a stream
    uint32_t window_cells;    // cells of a stream in device memory
    uint32_t n_stream;
    uint8_t  local;           // 1: its attention sees the first `local_first` and the newest `local_cells` tokens; `window_cells` rows are kept of it
    uint32_t local_first;
    uint32_t local_cells;
    uint64_t device_bytes;    // of K and V in device memory
    uint64_t host_bytes;      // of K and V in host memory
    struct rkv_layer_counters counters;
};

// The request that is active in a context.
struct rkv_residency_info {
    uint8_t  active;     // 0: rolling-kv is off
    uint8_t  tiled;      // 1: every attention node runs in tiles
    uint32_t tile_cells;
    uint32_t n_layers;   // entries that rkv_residency_layer_get gives
};

LLAMA_API void rkv_residency_info_get(const struct llama_context * ctx, struct rkv_residency_info * info);

// Entry `i` of [0, n_layers). False when there is none.
LLAMA_API bool rkv_residency_layer_get(const struct llama_context * ctx, uint32_t i, struct rkv_layer_residency * layer);

// What the context's devices staged, over all of them, after waiting for the context's work. False when none of them stages.
LLAMA_API bool rkv_staging_totals_get(struct llama_context * ctx, struct rkv_staging_totals * totals);

// What crossed this device's link. False when it does not tell.
LLAMA_API bool rkv_link_totals_get(ggml_backend_dev_t dev, struct rkv_link_totals * totals);

// Why cells of this context cannot be moved to other positions, in `text` (n_text bytes with the closing zero). Returns the length
// that the whole text has; 0: they can be moved.
LLAMA_API size_t rkv_shift_refusal_text(const struct llama_context * ctx, char * text, size_t n_text);

// Bytes of one cell's K (value = false) or V row in entry `i`; 0 when there is none.
LLAMA_API uint64_t rkv_cell_bytes(const struct llama_context * ctx, uint32_t i, bool value);

enum rkv_part {
    RKV_PART_NONE   = 0, // no such cell
    RKV_PART_WINDOW = 1,
    RKV_PART_TAIL   = 2,
};

// Copies one cell's row into `row` (rkv_cell_bytes bytes) after waiting for the context's work; tells the part it lies in.
LLAMA_API enum rkv_part rkv_cell_read(struct llama_context * ctx, uint32_t i, bool value, uint32_t stream, uint32_t cell, void * row);

// Overwrites one cell's row: for tests and gates that must see a wrong byte.
LLAMA_API enum rkv_part rkv_cell_write(struct llama_context * ctx, uint32_t i, bool value, uint32_t stream, uint32_t cell, const void * row);

#ifdef __cplusplus
}
#endif
