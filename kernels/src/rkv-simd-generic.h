#pragma once

// rkv-simd.h for every other machine: 4 lanes, as a vector of the compiler where it has one (GCC, Clang: NEON, SSE2,
// and the rest), else as plain loops.

namespace rkv {

static constexpr int LANES = 4;

#if defined(__GNUC__)
typedef float   vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
#else
struct vi {
    int32_t x[LANES];
    int32_t & operator[](int i) { return x[i]; }
};
struct vf {
    float x[LANES];
    float   operator[](int i) const { return x[i]; }
    float & operator[](int i) { return x[i]; }
};
#define RKV_LANEWISE(op)                               \
    static inline vf operator op(vf a, vf b) {         \
        for (int i = 0; i < LANES; ++i) {              \
            a[i] = a[i] op b[i];                       \
        }                                              \
        return a;                                      \
    }
RKV_LANEWISE(+)
RKV_LANEWISE(-)
RKV_LANEWISE(*)
RKV_LANEWISE(/)
#undef RKV_LANEWISE
#endif

#if defined(__aarch64__) || defined(_M_ARM64)
static constexpr int N_VREG = 32;
static constexpr int UNPACK_ROWS = 32;
#else
static constexpr int N_VREG = 16;
static constexpr int UNPACK_ROWS = 4;
#endif

static inline vf vf_zero() { return vf{ 0.0f, 0.0f, 0.0f, 0.0f }; }
static inline vf vf_set1(float x) { return vf{ x, x, x, x }; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }

static inline vf vf_fma(vf a, vf b, vf c) {
#if defined(__aarch64__) && defined(__ARM_NEON)
    return (vf) vfmaq_f32((float32x4_t) c, (float32x4_t) a, (float32x4_t) b);
#else
    return a * b + c;
#endif
}

// a < b ? x : y
static inline vf vf_select_lt(vf a, vf b, vf x, vf y) {
#if defined(__GNUC__)
    const vi m = (vi) (a < b);
    return (vf) (((vi) x & m) | ((vi) y & ~m));
#else
    for (int i = 0; i < LANES; ++i) {
        y[i] = a[i] < b[i] ? x[i] : y[i];
    }
    return y;
#endif
}

// a > b ? a : b, so b when one of them is NaN.
static inline vf vf_max(vf a, vf b) { return vf_select_lt(b, a, a, b); }

// 2^n of z = n + 1.5 * 2^23, for -126 <= n <= 127
static inline vf vf_pow2_of_magic(vf z) {
    uint32_t u[LANES];
    memcpy(u, &z, sizeof(u));
    for (int i = 0; i < LANES; ++i) {
        u[i] = (u[i] << 23) + 0x3f800000u;
    }
    memcpy(&z, u, sizeof(u));
    return z;
}

static inline vf vf_load(const float * p) {
    vf a;
    memcpy(&a, p, sizeof(a));
    return a;
}
static inline vf vf_load(const ggml_fp16_t * p) {
#if defined(__aarch64__) && defined(__ARM_NEON)
    return (vf) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *) p)));
#else
    return vf{ GGML_CPU_FP16_TO_FP32(p[0]), GGML_CPU_FP16_TO_FP32(p[1]),
               GGML_CPU_FP16_TO_FP32(p[2]), GGML_CPU_FP16_TO_FP32(p[3]) };
#endif
}
static inline vf vf_load(const ggml_bf16_t * p) {
    return vf{ GGML_BF16_TO_FP32(p[0]), GGML_BF16_TO_FP32(p[1]), GGML_BF16_TO_FP32(p[2]), GGML_BF16_TO_FP32(p[3]) };
}

static inline vf vf_load(const int8_t * p) {
    return vf{ (float) p[0], (float) p[1], (float) p[2], (float) p[3] };
}

// The first n < LANES elements; the other lanes are 0 and their memory is not touched.
template <typename T> static inline vf vf_load_part(const T * p, int n) {
    T part[LANES] = {};
    memcpy(part, p, n * sizeof(T));
    return vf_load(part);
}

static inline void vf_store(float * p, vf a) { memcpy(p, &a, sizeof(a)); }
static inline void vf_store_part(float * p, vf a, int n) { memcpy(p, &a, n * sizeof(float)); }

static inline float vf_hmax(vf a) { return fmaxf(fmaxf(a[0], a[2]), fmaxf(a[1], a[3])); }

static inline float vf_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }

// Sums of four vectors to p[0..4). Each sum is the same tree of additions wherever its vector stands.
static inline void vf_sum4(float * p, vf a, vf b, vf c, vf d) {
    p[0] = vf_sum(a);
    p[1] = vf_sum(b);
    p[2] = vf_sum(c);
    p[3] = vf_sum(d);
}

} // namespace rkv
