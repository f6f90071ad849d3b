#pragma once

// rolling-kv: how a layer turns K by its position. Part of rkv.h.

#include "llama.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rkv_layer_rope {
    uint32_t head;       // channels of a head
    uint32_t rotated;    // of them turned
    uint32_t offset;     // the first of those
    bool     halves;     // pairs are (i, i + rotated/2), else (2i, 2i + 1)
    bool     plain;      // the angle of pair i is position*scale*base^(-2i/rotated): neither YaRN nor factors
    float    freq_base;
    float    freq_scale;
};

// Of entry `i` of the residency's layers. False when there is none, or it does not turn K.
LLAMA_API bool rkv_layer_rope_get(const struct llama_context * ctx, uint32_t i, struct rkv_layer_rope * rope);

#ifdef __cplusplus
}
#endif
