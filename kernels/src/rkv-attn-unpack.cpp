#include "rkv-attn-unpack.h"

#include "rkv-simd.h"

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace rkv {

template <typename T> static void unpack_floats(const void * row, float * out, int64_t n) {
    const T * x = (const T *) row;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf_store(out + i, vf_load(x + i));
    }
    if (i < n) {
        vf_store_part(out + i, vf_load_part(x + i, (int) (n - i)), (int) (n - i));
    }
}

static constexpr int N_QUANT = 32; // elements of a block, of every type below

#if defined(__GNUC__)

typedef uint8_t  u8x16 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

static inline u8x16 load_bytes(const uint8_t * p) {
    u8x16 x;
    memcpy(&x, p, sizeof(x));
    return x;
}

// 16 in byte j when bit j of the two bytes is set, else 0.
static inline u8x16 fifth_bits(const uint8_t * two) {
    const u64x2 copies = { two[0]*0x0101010101010101u, two[1]*0x0101010101010101u };
    const u8x16 bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    return (u8x16) (((u8x16) copies & bit) == bit) & 16;
}

// Quants of a block: the low nibbles, then the high ones; `high` holds a fifth bit of each, or is NULL.
static inline void spread(const uint8_t * qs, const uint8_t * high, int offset, int8_t * q) {
    const u8x16 x = load_bytes(qs);
    u8x16 lo = x & 0x0f;
    u8x16 hi = x >> 4;
    if (high) {
        lo |= fifth_bits(high);
        hi |= fifth_bits(high + 2);
    }
    lo -= (uint8_t) offset;
    hi -= (uint8_t) offset;
    memcpy(q, &lo, sizeof(lo));
    memcpy(q + sizeof(lo), &hi, sizeof(hi));
}

#else

// Quants of a block: the low nibbles, then the high ones; `high` holds a fifth bit of each, or is NULL.
static inline void spread(const uint8_t * qs, const uint8_t * high, int offset, int8_t * q) {
    const int half = N_QUANT/2;
    for (int j = 0; j < half; ++j) {
        const int fifth_lo = high ? (high[j / 8] >> j % 8 & 1) << 4 : 0;
        const int fifth_hi = high ? (high[2 + j / 8] >> j % 8 & 1) << 4 : 0;
        q[j]        = (int8_t) (((qs[j] & 0x0f) | fifth_lo) - offset);
        q[j + half] = (int8_t) (((qs[j] >> 4) | fifth_hi) - offset);
    }
}

#endif

static inline void quants(const block_q4_0 & b, int8_t * q) { spread(b.qs, nullptr, 8, q); }
static inline void quants(const block_q4_1 & b, int8_t * q) { spread(b.qs, nullptr, 0, q); }
static inline void quants(const block_q5_0 & b, int8_t * q) { spread(b.qs, b.qh, 16, q); }
static inline void quants(const block_q5_1 & b, int8_t * q) { spread(b.qs, b.qh, 0, q); }
static inline void quants(const block_q8_0 & b, int8_t * q) { memcpy(q, b.qs, N_QUANT); }

static inline float scale_of(const block_q4_0 & b) { return GGML_CPU_FP16_TO_FP32(b.d); }
static inline float scale_of(const block_q5_0 & b) { return GGML_CPU_FP16_TO_FP32(b.d); }
static inline float scale_of(const block_q8_0 & b) { return GGML_CPU_FP16_TO_FP32(b.d); }
static inline float scale_of(const block_q4_1 & b) { return GGML_CPU_FP16_TO_FP32(b.data.data.d); }
static inline float scale_of(const block_q5_1 & b) { return GGML_CPU_FP16_TO_FP32(b.data.data.d); }

static inline float shift_of(const block_q4_1 & b) { return GGML_CPU_FP16_TO_FP32(b.data.data.m); }
static inline float shift_of(const block_q5_1 & b) { return GGML_CPU_FP16_TO_FP32(b.data.data.m); }

// x = d*q
template <typename block> static void unpack_scaled(const void * row, float * out, int64_t n) {
    const block * b = (const block *) row;
    for (int64_t i = 0; i < n; i += N_QUANT, ++b) {
        int8_t q[N_QUANT];
        quants(*b, q);
        const vf d = vf_set1(scale_of(*b));
        for (int j = 0; j < N_QUANT; j += LANES) {
            vf_store(out + i + j, vf_mul(vf_load(q + j), d));
        }
    }
}

// x = d*q + m
template <typename block> static void unpack_shifted(const void * row, float * out, int64_t n) {
    const block * b = (const block *) row;
    for (int64_t i = 0; i < n; i += N_QUANT, ++b) {
        int8_t q[N_QUANT];
        quants(*b, q);
        const vf d = vf_set1(scale_of(*b));
        const vf m = vf_set1(shift_of(*b));
        for (int j = 0; j < N_QUANT; j += LANES) {
            vf_store(out + i + j, vf_fma(vf_load(q + j), d, m));
        }
    }
}

unpack_fn unpack_for(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:  return unpack_floats<float>;
        case GGML_TYPE_F16:  return unpack_floats<ggml_fp16_t>;
        case GGML_TYPE_BF16: return unpack_floats<ggml_bf16_t>;
        case GGML_TYPE_Q8_0: return unpack_scaled<block_q8_0>;
        case GGML_TYPE_Q4_0: return unpack_scaled<block_q4_0>;
        case GGML_TYPE_Q5_0: return unpack_scaled<block_q5_0>;
        case GGML_TYPE_Q4_1: return unpack_shifted<block_q4_1>;
        case GGML_TYPE_Q5_1: return unpack_shifted<block_q5_1>;
        default: break;
    }
    const struct ggml_type_traits * traits = ggml_get_type_traits(type);
    GGML_ASSERT(traits->to_float && "attention cannot read this type");
    return (unpack_fn) traits->to_float;
}

} // namespace rkv
