#pragma once

// rkv-simd.h for AVX-512 (F, BW, VL): 16 lanes, masked loads and stores for the ends of rows.

#include <immintrin.h>

namespace rkv {

typedef __m512 vf;

static constexpr int LANES = 16;
static constexpr int UNPACK_ROWS = 1 << 20; // never
static constexpr int N_VREG = 32;

// Some compilers warn of an undefined value inside of the plain intrinsics. Those that zero masked-off lanes, with no
// lane masked off, are the same instructions without it.
static constexpr __mmask16 EVERY = 0xffff;

static inline vf vf_zero() { return _mm512_setzero_ps(); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

// a > b ? a : b, so b when one of them is NaN.
static inline vf vf_max(vf a, vf b) { return _mm512_maskz_max_ps(EVERY, a, b); }

// a < b ? x : y
static inline vf vf_select_lt(vf a, vf b, vf x, vf y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

// 2^n of z = n + 1.5 * 2^23, for -126 <= n <= 127
static inline vf vf_pow2_of_magic(vf z) {
    const __m512i e = _mm512_maskz_slli_epi32(EVERY, _mm512_castps_si512(z), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(e, _mm512_set1_epi32(0x3f800000)));
}

static inline __mmask16 lanes_below(int n) { return (__mmask16) ((1u << n) - 1); }

static inline vf vf_load(const float * p) { return _mm512_loadu_ps(p); }
static inline vf vf_load(const ggml_fp16_t * p) {
    return _mm512_maskz_cvtph_ps(EVERY, _mm256_loadu_si256((const __m256i *) p));
}
static inline vf vf_load(const ggml_bf16_t * p) {
    const __m512i x = _mm512_maskz_cvtepu16_epi32(EVERY, _mm256_loadu_si256((const __m256i *) p));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(EVERY, x, 16));
}
static inline vf vf_load(const int8_t * p) {
    return _mm512_maskz_cvtepi32_ps(EVERY, _mm512_maskz_cvtepi8_epi32(EVERY, _mm_loadu_si128((const __m128i *) p)));
}

// The first n < LANES elements; the other lanes are 0 and their memory is not touched.
static inline vf vf_load_part(const float * p, int n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
static inline vf vf_load_part(const ggml_fp16_t * p, int n) {
    return _mm512_maskz_cvtph_ps(EVERY, _mm256_maskz_loadu_epi16(lanes_below(n), p));
}
static inline vf vf_load_part(const ggml_bf16_t * p, int n) {
    const __m512i x = _mm512_maskz_cvtepu16_epi32(EVERY, _mm256_maskz_loadu_epi16(lanes_below(n), p));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(EVERY, x, 16));
}

static inline void vf_store(float * p, vf a) { _mm512_storeu_ps(p, a); }
static inline void vf_store_part(float * p, vf a, int n) { _mm512_mask_storeu_ps(p, lanes_below(n), a); }

template <int HALF> static inline __m256 vf_half(vf a) {
    return _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd((__mmask8) EVERY, _mm512_castps_pd(a), HALF));
}

static inline float vf_hmax(vf a) {
    const __m256 m8 = _mm256_max_ps(vf_half<0>(a), vf_half<1>(a));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

static inline __m256 vf_fold(vf a) { return _mm256_add_ps(vf_half<0>(a), vf_half<1>(a)); }

// Sums of four vectors to p[0..4). Each sum is the same tree of additions wherever its vector stands.
static inline void vf_sum4(float * p, vf a, vf b, vf c, vf d) {
    const __m256 a8 = vf_fold(a), b8 = vf_fold(b), c8 = vf_fold(c), d8 = vf_fold(d);
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a8, b8), _mm256_unpackhi_ps(a8, b8));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c8, d8), _mm256_unpackhi_ps(c8, d8));
    const __m256d abd = _mm256_castps_pd(ab), cdd = _mm256_castps_pd(cd);
    const __m256 s = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(abd, cdd)),
                                   _mm256_castpd_ps(_mm256_unpackhi_pd(abd, cdd)));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

} // namespace rkv
