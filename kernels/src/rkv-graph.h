#pragma once

// Turns an attention node of the graph into a tiled one, and hangs the tail on it.

#include "rkv-local.h"
#include "rkv-residency.h"
#include "rkv-staging.h"

#include "ggml.h"

// Called on each flash attention node right after it was made. `node`'s K and V are permuted views that get_k and get_v gave.
void rkv_attn_node_init(ggml_context * ctx, ggml_tensor * node, const rkv_attn_config & config, int il);

// Throws when attention over `k` cannot run in tiles although part of it lies in a tail: it has a bias, or flash attention is off.
void rkv_attn_check(const ggml_tensor * k, bool use_flash_attn, int il);

// Throws when a residency was asked for and flash attention was resolved to off.
void rkv_flash_attn_check(const rkv_attn_config & config, bool flash_attn);

// Throws when some node reads a window's view without its tail, or when the device that holds a cache cannot compute its attention.
// Called on the graph that a new context reserves.
void rkv_graph_check(ggml_cgraph * gf, const rkv_attn_config & config);
