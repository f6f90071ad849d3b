#pragma once

// Numbers as rows of a cache hold them, eight channels at a time.

#include "rkv-cuda-bytes.h"

#include "ggml.h"

#if defined(__HIPCC__)
#include <hip/hip_fp16.h>
#elif defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <stddef.h>
#include <stdint.h>

namespace rkv {

constexpr int ATTN_ANY_TYPE = -1; // the type is known when the kernel runs

RKV_HD float from_half(uint16_t bits) {
#ifdef RKV_ON_DEVICE
    return __half2float(__ushort_as_half(bits));
#else
    return ggml_fp16_to_fp32(bits);
#endif
}

RKV_HD float from_bf16(uint16_t bits) {
    union { uint32_t u; float f; } x;
    x.u = uint32_t(bits) << 16;
    return x.f;
}

// Rows of quantised types are aligned to two bytes.
struct bytes8 {
    uint16_t h[4];

    RKV_HD static bytes8 at(const uint8_t * p) {
        const uint16_t * s = (const uint16_t *) p;
        return { { s[0], s[1], s[2], s[3] } };
    }
    RKV_HD int byte(int i) const { return (h[i/2] >> (8*(i%2))) & 0xff; }
};

RKV_HD uint16_t half_at(const uint8_t * p) {
    return *(const uint16_t *) p;
}

// Channels [i, i + 8) of a row, where i is a multiple of 8.
RKV_HD void load_f32(const char * row, int i, float * x) {
    const words4 * p = (const words4 *) (row + size_t(i)*sizeof(float));
    for (int h = 0; h < 2; ++h) {
        const words4 w = p[h];
        for (int j = 0; j < 4; ++j) {
            union { uint32_t u; float f; } v;
            v.u = w.w[j];
            x[4*h + j] = v.f;
        }
    }
}

RKV_HD void load_f16(const char * row, int i, float * x) {
    const words4 w = *(const words4 *) (row + size_t(i)*2);
    for (int j = 0; j < 8; ++j) {
        x[j] = from_half(uint16_t(w.w[j/2] >> (16*(j%2))));
    }
}

RKV_HD void load_bf16(const char * row, int i, float * x) {
    const words4 w = *(const words4 *) (row + size_t(i)*2);
    for (int j = 0; j < 8; ++j) {
        x[j] = from_bf16(uint16_t(w.w[j/2] >> (16*(j%2))));
    }
}

// Blocks of 32 channels: the first 16 in the low halves of bytes, the others in the high ones.
RKV_HD void load_nibbles(const uint8_t * qs, int j, int * q) {
    const bytes8 b     = bytes8::at(qs + j%16);
    const int    shift = j < 16 ? 0 : 4;
    for (int k = 0; k < 8; ++k) {
        q[k] = (b.byte(k) >> shift) & 0xf;
    }
}

RKV_HD void add_high_bits(const uint8_t * qh, int j, int * q) {
    const uint32_t bits = (uint32_t(half_at(qh)) | uint32_t(half_at(qh + 2)) << 16) >> j;
    for (int k = 0; k < 8; ++k) {
        q[k] |= ((bits >> k) & 1) << 4;
    }
}

RKV_HD void load_q4_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*18;
    int q[8];
    load_nibbles(b + 2, i%32, q);
    const float d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k] - 8)*d;
    }
}

RKV_HD void load_q4_1(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*20;
    int q[8];
    load_nibbles(b + 4, i%32, q);
    const float d = from_half(half_at(b));
    const float m = from_half(half_at(b + 2));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k])*d + m;
    }
}

RKV_HD void load_q5_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*22;
    int q[8];
    load_nibbles(b + 6, i%32, q);
    add_high_bits(b + 2, i%32, q);
    const float d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k] - 16)*d;
    }
}

RKV_HD void load_q5_1(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*24;
    int q[8];
    load_nibbles(b + 8, i%32, q);
    add_high_bits(b + 4, i%32, q);
    const float d = from_half(half_at(b));
    const float m = from_half(half_at(b + 2));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(q[k])*d + m;
    }
}

RKV_HD void load_q8_0(const char * row, int i, float * x) {
    const uint8_t * b = (const uint8_t *) row + size_t(i/32)*34;
    const bytes8    q = bytes8::at(b + 2 + i%32);
    const float     d = from_half(half_at(b));
    for (int k = 0; k < 8; ++k) {
        x[k] = float(int8_t(q.byte(k)))*d;
    }
}

// Types that tiles may have.
RKV_HD bool attn_has_type(int type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_1 ||
        type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1 || type == GGML_TYPE_Q8_0;
}

template <int TYPE> RKV_HD void load8(int type, const char * row, int i, float * x) {
    switch (TYPE == ATTN_ANY_TYPE ? type : TYPE) {
        case GGML_TYPE_F32:  load_f32 (row, i, x); break;
        case GGML_TYPE_F16:  load_f16 (row, i, x); break;
        case GGML_TYPE_BF16: load_bf16(row, i, x); break;
        case GGML_TYPE_Q4_0: load_q4_0(row, i, x); break;
        case GGML_TYPE_Q4_1: load_q4_1(row, i, x); break;
        case GGML_TYPE_Q5_0: load_q5_0(row, i, x); break;
        case GGML_TYPE_Q5_1: load_q5_1(row, i, x); break;
        default:             load_q8_0(row, i, x); break;
    }
}

} // namespace rkv
