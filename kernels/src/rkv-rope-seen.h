#pragma once

// How a layer's graph turns K when it makes it. A move of K must turn the same way; some architectures do so in ways that the model's own
// description does not tell: without frequency factors, or without YaRN, in the layers with a sliding window.

#include "ggml.h"

struct rkv_rope_seen {
    bool  known = false; // the graph was looked at, and turns K
    int   n_dims;        // channels of a head that are turned
    int   mode;
    int   n_ctx_orig;
    float freq_base;
    float freq_scale;
    float ext_factor;
    float attn_factor;
    float beta_fast;
    float beta_slow;

    ggml_tensor * factors; // [n_dims/2] f32, of the model; or NULL
};

// What stands on a leaf K of a cache, in place of a parameter that only nodes have: a struct rkv_rope_seen *.
enum { RKV_LEAF_PARAM_ROPE = 12 };

// Looks at the nodes that store K, and notes how each layer's was turned.
void rkv_rope_look(ggml_cgraph * gf);
