#pragma once

// Rows of a tail that has another type than its window, put down as the window's: eight channels at a time, by way of f32.

#include "rkv-cuda-numbers.h"

#include <stddef.h>
#include <stdint.h>

namespace rkv {

RKV_HD uint16_t to_half(float f) {
#ifdef RKV_ON_DEVICE
    return __half_as_ushort(__float2half_rn(f));
#else
    return ggml_fp32_to_fp16(f);
#endif
}

// To the nearest, and to even where two are as near; a NaN stays one.
RKV_HD uint16_t to_bf16(float f) {
    union { float f; uint32_t u; } x;
    x.f = f;
    if ((x.u & 0x7fffffff) > 0x7f800000) {
        return uint16_t(x.u >> 16 | 64);
    }
    return uint16_t((x.u + (0x7fff + (x.u >> 16 & 1))) >> 16);
}

// Types that rows can be put down in.
RKV_HD bool convert_has_type(int type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

// Channels [i, i + 8) of a row, where i is a multiple of 8.
RKV_HD void store8(int type, char * row, int i, const float * x) {
    if (type == GGML_TYPE_F32) {
        words4 * p = (words4 *) (row + size_t(i)*sizeof(float));
        for (int h = 0; h < 2; ++h) {
            for (int j = 0; j < 4; ++j) {
                union { float f; uint32_t u; } v;
                v.f = x[4*h + j];
                p[h].w[j] = v.u;
            }
        }
        return;
    }
    words4 w;
    for (int j = 0; j < 4; ++j) {
        const float    a = x[2*j], b = x[2*j + 1];
        const uint32_t low  = type == GGML_TYPE_F16 ? to_half(a) : to_bf16(a);
        const uint32_t high = type == GGML_TYPE_F16 ? to_half(b) : to_bf16(b);
        w.w[j] = low | high << 16;
    }
    *(words4 *) (row + size_t(i)*2) = w;
}

// Cells of one part of a cache with all their heads. Strides in bytes.
struct convert_rows {
    char       * dst;
    const char * src;
    int64_t      dst_nb_cell, dst_nb_head;
    int64_t      src_nb_cell, src_nb_head;
    int64_t      n_cell;
    int          n_head;
    int          n_vec;  // eighth channels of a head
    int          dst_type, src_type;

    RKV_HD int64_t n() const { return n_cell*n_head*n_vec; }
};

// Eight channels of the n().
RKV_HD void convert_vec(const convert_rows & a, int64_t i) {
    const int     vec  = int(i%a.n_vec);
    const int     head = int(i/a.n_vec%a.n_head);
    const int64_t cell = i/a.n_vec/a.n_head;
    float x[8];
    load8<ATTN_ANY_TYPE>(a.src_type, a.src + cell*a.src_nb_cell + head*a.src_nb_head, vec*8, x);
    store8(a.dst_type, a.dst + cell*a.dst_nb_cell + head*a.dst_nb_head, vec*8, x);
}

} // namespace rkv
