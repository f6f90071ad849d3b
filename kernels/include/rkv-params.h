#pragma once

// rolling-kv: what a caller asks of a context's KV cache. Part of llama_context_params.

#include "rkv-step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rkv_mode {
    RKV_MODE_OFF    = 0, // stock llama.cpp
    RKV_MODE_WINDOW = 1, // cells [0, window) of a layer in device memory, the rest in host memory
};

enum rkv_order {
    RKV_ORDER_AUTO  = 0, // a layer whose cells all lie in its window keeps stock's attention node; once spilled, tiles
    RKV_ORDER_TILED = 1, // every attention node runs tile by tile from the first token: placement never changes the bits
};

// What becomes of a request to move cells to other positions when some of them lie in a tail.
enum rkv_shift_mode {
    RKV_SHIFT_REROPE = 0, // K is turned in both parts
    RKV_SHIFT_GUARD  = 1, // it is refused
};

// Where the tail's K is turned.
enum rkv_shift_path {
    RKV_SHIFT_PATH_AUTO   = 0, // where it is reckoned to be faster
    RKV_SHIFT_PATH_HOST   = 1, // where it lies
    RKV_SHIFT_PATH_DEVICE = 2, // by the device, over its link
};

// Values of rkv_params.window_cells and of an entry of rkv_params.layer_window.
#define RKV_WINDOW_AUTO     (-1) // as many cells as fit rkv_params.vram_target, or else the device's free memory
#define RKV_WINDOW_RESIDENT (-2) // every cell in the window; of a layer: wholly resident
#define RKV_WINDOW_DEFAULT  (-3) // of a layer: the window of the context

#define RKV_TILE_DEFAULT 128
#define RKV_TILE_MIN     32
#define RKV_TILE_MAX     8192

#define RKV_LOCAL_CELLS_DEFAULT 1024
#define RKV_LOCAL_FIRST_DEFAULT 4

struct rkv_params {
    enum rkv_mode  mode;
    enum rkv_order order;
    int64_t  window_cells;    // cells of a layer and stream in device memory, or RKV_WINDOW_AUTO; rounded down to whole tiles
    uint32_t tile_cells;      // cells of a tile, a multiple of 32; 0: RKV_TILE_DEFAULT
    uint64_t vram_target;     // bytes of device memory that the window may take, with RKV_WINDOW_AUTO; 0: no target
    uint64_t reserve_bytes;   // bytes of each device that an automatic window without a target leaves free; 0: an eighth and half a GiB
    const int64_t * layer_window; // [n_layer_window] window of layer il, or NULL; read while the context is made
    size_t   n_layer_window;
    struct rkv_staging_params staging; // of devices that stage the tail's tiles
    enum rkv_shift_mode shift;
    enum rkv_shift_path shift_path;
    uint32_t tail_type_k;     // 1 + a ggml_type that the tail's rows have; 0: the window's
    uint32_t tail_type_v;

    // Layers whose attention is limited to the first `local_first` and the newest `local_cells` tokens of a sequence. They have no
    // tail. This changes results. Made for a model of `local_n_layer` layers; 0: of any.
    const uint32_t * local_layers; // [n_local_layers], or NULL; read while the context is made
    size_t   n_local_layers;
    uint32_t local_cells;          // 0: RKV_LOCAL_CELLS_DEFAULT
    uint32_t local_first;
    uint32_t local_n_layer;
};

#ifdef __cplusplus
}
#endif
