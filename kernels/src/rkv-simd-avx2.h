#pragma once

// rkv-simd.h for AVX2 with FMA and F16C: 8 lanes.

#include <immintrin.h>

namespace rkv {

typedef __m256 vf;

static constexpr int LANES = 8;
static constexpr int UNPACK_ROWS = 32;
static constexpr int N_VREG = 16;

static inline vf vf_zero() { return _mm256_setzero_ps(); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

// a > b ? a : b, so b when one of them is NaN.
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }

// a < b ? x : y
static inline vf vf_select_lt(vf a, vf b, vf x, vf y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

// 2^n of z = n + 1.5 * 2^23, for -126 <= n <= 127
static inline vf vf_pow2_of_magic(vf z) {
    const __m256i e = _mm256_slli_epi32(_mm256_castps_si256(z), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32(0x3f800000)));
}

static inline vf vf_load(const float * p) { return _mm256_loadu_ps(p); }
static inline vf vf_load(const ggml_fp16_t * p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)); }
static inline vf vf_load(const ggml_bf16_t * p) {
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
static inline vf vf_load(const int8_t * p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) p)));
}

// The first n < LANES elements; the other lanes are 0 and their memory is not touched.
template <typename T> static inline vf vf_load_part(const T * p, int n) {
    T part[LANES] = {};
    memcpy(part, p, n * sizeof(T));
    return vf_load(part);
}

static inline void vf_store(float * p, vf a) { _mm256_storeu_ps(p, a); }
static inline void vf_store_part(float * p, vf a, int n) {
    float part[LANES];
    vf_store(part, a);
    memcpy(p, part, n * sizeof(float));
}

static inline float vf_hmax(vf a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

// Sums of four vectors to p[0..4). Each sum is the same tree of additions wherever its vector stands.
static inline void vf_sum4(float * p, vf a, vf b, vf c, vf d) {
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d abd = _mm256_castps_pd(ab), cdd = _mm256_castps_pd(cd);
    const __m256 s = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(abd, cdd)),
                                   _mm256_castpd_ps(_mm256_unpackhi_pd(abd, cdd)));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

} // namespace rkv
