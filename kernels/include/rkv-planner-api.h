#pragma once

// rolling-kv: what fits a machine and how fast it would be, by arithmetic alone. No device, no model and no file is touched.

#include "ggml.h"
#include "llama.h"

#include "rkv-params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a machine does, as measured or as published. Rates are bytes per second, and 0 where nothing is known.
struct rkv_rates {
    double   to_device_pinned;   // the link, from pinned host memory
    double   to_device_pageable; // from ordinary memory
    double   to_host_pinned;
    double   to_host_pageable;
    double   link_latency_s;     // of one copy, seconds
    double   host_read;          // plain reads of host memory, all threads: what the link and the host's attention read together; 0: no limit
    double   host_kernel[GGML_TYPE_COUNT]; // attention of few queries over K and V of this type in host memory
    double   device_memory;      // the device's own, as matrices are read for one token
    double   device_attention;   // attention of one token over K and V there; 0: as device_memory
    double   device_launch_s;    // of a node of a graph, seconds
    double   device_flops;       // of matrix products as wide as a prompt's batch, operations per second; 0: without end
    uint64_t device_bytes;       // memory of the device that is free
    uint64_t host_bytes;         // the same of the host
};

// A layer whose cache grows with the context.
struct rkv_plan_layer {
    enum ggml_type type_k, type_v;           // of the window
    enum ggml_type tail_type_k, tail_type_v;
    uint32_t       k_values, v_values;       // values of a cell's row; v_values is 0 where V is a part of K
    uint32_t       n_head;                   // of queries
    uint32_t       d_k, d_v;                 // values of a head
};

struct rkv_plan_model {
    const struct rkv_plan_layer * layers; // [n_layer]
    uint32_t n_layer;
    uint64_t weight_bytes;      // that lie on the device
    uint64_t step_weight_bytes; // that are read for one token
    uint64_t beside_bytes;      // caches that do not grow, and states: they stay on the device
    uint64_t compute_bytes;     // working memory of a batch
    uint32_t n_node;            // nodes of a step
    double   token_flops;       // operations of a token, those of attention left out
};

struct rkv_plan_ask {
    uint64_t n_ctx;         // cells of a stream
    uint64_t depth;         // of them in use when a token is decoded
    uint32_t n_stream;
    uint32_t n_ubatch;      // tokens of a prompt that are computed at a time
    int64_t  window_cells;  // as in rkv_params
    uint64_t vram_target;   // as in rkv_params
    uint64_t reserve_bytes; // as in rkv_params
    uint32_t tile_cells;    // 0: RKV_TILE_DEFAULT
    struct rkv_staging_params staging;
};

enum rkv_plan_fit {
    RKV_PLAN_RESIDENT   = 0, // every cell fits the device
    RKV_PLAN_WINDOW     = 1, // a window of them does
    RKV_PLAN_NO_DEVICE  = 2, // the weights alone, or what was asked for beside them, do not
    RKV_PLAN_NO_HOST    = 3, // the tail does not fit the host
};

// The values of enum rkv_tail_engine.
enum rkv_plan_engine_id {
    RKV_PLAN_STREAM = 1,
    RKV_PLAN_HOST   = 2,
    RKV_PLAN_HYBRID = 3,
};

// What one engine would take.
struct rkv_plan_engine {
    bool   possible;   // its rates are known
    double step_s;     // of a decode step of all streams, seconds
    double host_share; // of the tail's bytes that the host attends to
};

#define RKV_PLAN_N_ENGINE 3

struct rkv_plan_result {
    enum rkv_plan_fit fit;
    uint64_t window_cells;     // of a layer and stream
    uint64_t window_bytes;     // of all layers and streams
    uint64_t tail_cells;
    uint64_t tail_bytes;       // host memory of the tail
    uint64_t step_tail_bytes;  // of it that a step reads at this depth
    uint32_t ring_depth;       // slots; 0: nothing is brought
    uint32_t copy_cells;
    uint64_t slot_bytes;
    uint64_t device_bytes;     // weights, window, what lies beside it, slots and working memory
    uint64_t missing_bytes;    // where it does not fit: how much more memory it would take
    double   compute_s;        // a step with every cell on the device, seconds
    double   prompt_s;         // a token of a prompt that ends at this depth, on average, seconds
    struct rkv_plan_engine engines[RKV_PLAN_N_ENGINE]; // stream, host, hybrid
    enum rkv_plan_engine_id best; // stream where there is no tail
};

LLAMA_API struct rkv_plan_result rkv_plan_make(const struct rkv_rates * rates, const struct rkv_plan_model * model, const struct rkv_plan_ask * ask);

// What `auto` needs to choose an engine when a context is made.
struct rkv_engine_rates {
    double link_bytes_s;
    double link_latency_s;
    double host_bytes_s; // of the host's attention kernel while the link works too; 0: unknown, so that nothing is left to it
};

struct rkv_engine_choice {
    enum rkv_plan_engine_id engine;
    double host_share; // of the tail's bytes that the host attends to
    double step_s;     // as predicted
};

// The engine of a step that reads `tail_bytes` in `n_node` attention nodes and else computes for `compute_s` seconds; 0: it is not known
// how long, and is taken to be short. Another engine than `stream` is chosen only where it is predicted to be faster by
// RKV_PLAN_MARGIN.
LLAMA_API struct rkv_engine_choice rkv_planner_engine(const struct rkv_engine_rates * rates, uint64_t tail_bytes, uint32_t n_node, double compute_s);

#define RKV_PLAN_MARGIN 0.03

#ifdef __cplusplus
}
#endif
