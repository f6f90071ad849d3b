#pragma once

// The residency that a context asked for, while its memory is being made.
//
// A cache is constructed far from the context's parameters, in many places; so the context says what it wants for the
// time of the construction, on its own thread, and each cache asks.

#include "ggml.h"
#include "rkv-params.h"

#include <cstdint>
#include <string>
#include <vector>

struct llama_context_params;
struct llama_cparams;
struct llama_hparams;
struct llama_memory_i;
struct llama_model;

// Part of llama_cparams: what graph building needs to know.
struct rkv_attn_config {
    bool     tiled = false; // every attention node runs in tiles
    uint32_t tile  = 0;     // cells of a tile; 0: rolling-kv is off
    rkv_staging_params staging = {};
    rkv_shift_path     shift_path = RKV_SHIFT_PATH_AUTO;
};

// A residency request, checked: mode, order and tile are valid and flash attention is on.
struct rkv_residency {
    rkv_params           params = {};
    std::vector<int64_t> layer_window; // [n_layer], RKV_WINDOW_* or cells, whole tiles
    std::vector<bool>    local_layers; // [n_layer], or empty
    uint32_t             local_ring = 0; // see rkv_local_ring
    bool                 alibi = false;
    ggml_type            tail_k = GGML_TYPE_F16; // types of the tail's rows
    ggml_type            tail_v = GGML_TYPE_F16;
    bool                 measured_only = false; // memory is counted and not taken, as by --fit: an automatic window is as small as it can be
    uint64_t             beside_bytes = 0; // sliding caches and states per sequence: they stay on the device and count against a target

    bool active() const { return params.mode == RKV_MODE_WINDOW; }
    bool is_local(uint32_t il) const { return il < local_layers.size() && local_layers[il]; }
};

// What rkv_params says when nothing is asked.
rkv_params rkv_params_default();

// Checks the request of a context against its model. Throws std::runtime_error with what is wrong and what to do.
rkv_residency rkv_residency_resolve(const llama_model & model, const llama_context_params & params);

// The attention configuration that belongs to a request.
rkv_attn_config rkv_attn_config_for(const rkv_residency & residency);

// Makes `residency` the one that caches constructed on this thread see, until the end of the scope.
class rkv_residency_scope {
public:
    explicit rkv_residency_scope(const rkv_residency & residency);
    ~rkv_residency_scope();

    rkv_residency_scope(const rkv_residency_scope &)             = delete;
    rkv_residency_scope & operator=(const rkv_residency_scope &) = delete;

    // The residency of the innermost scope on this thread, or NULL.
    static const rkv_residency * current();

private:
    const rkv_residency * previous;
};

// Throws unless the memory that was made is one whose split is known; logs the line that says what is active.
void rkv_memory_check(const llama_model & model, const rkv_residency & residency, const llama_memory_i * memory);
