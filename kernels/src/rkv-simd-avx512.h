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

// Sums of four vectors' lanes j, j+4, j+8, j+12 in turn: [a b c d] in each quarter, of its lanes.
static inline vf vf_fold4(vf a, vf b, vf c, vf d) {
    const vf ab = _mm512_add_ps(_mm512_maskz_unpacklo_ps(EVERY, a, b), _mm512_maskz_unpackhi_ps(EVERY, a, b));
    const vf cd = _mm512_add_ps(_mm512_maskz_unpacklo_ps(EVERY, c, d), _mm512_maskz_unpackhi_ps(EVERY, c, d));
    const __m512d abd = _mm512_castps_pd(ab), cdd = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_maskz_unpacklo_pd((__mmask8) EVERY, abd, cdd)),
                         _mm512_castpd_ps(_mm512_maskz_unpackhi_pd((__mmask8) EVERY, abd, cdd)));
}

template <int QUARTERS> static inline vf vf_quarters(vf a, vf b) {
    return _mm512_maskz_shuffle_f32x4(EVERY, a, b, QUARTERS);
}

template <int I> static inline void vf_store_quarter(float * p, vf a) {
    _mm_storeu_ps(p, _mm512_maskz_extractf32x4_ps((__mmask8) EVERY, a, I));
}

#define RKV_HAS_SUMS

// rkv-simd.h says what it is; the quarters of up to four rows are added together.
template <int R> static inline void vf_sums(float * p, int ld, const vf (*a)[4]) {
    vf t[4];
    for (int r = 0; r < 4; ++r) {
        t[r] = r < R ? vf_fold4(a[r][0], a[r][1], a[r][2], a[r][3]) : t[0];
    }
    const vf x = _mm512_add_ps(vf_quarters<0x44>(t[0], t[1]), vf_quarters<0xee>(t[0], t[1]));
    const vf y = R > 2 ? _mm512_add_ps(vf_quarters<0x44>(t[2], t[3]), vf_quarters<0xee>(t[2], t[3])) : x;
    const vf s = _mm512_add_ps(vf_quarters<0x88>(x, y), vf_quarters<0xdd>(x, y));
    vf_store_quarter<0>(p, s);
    if (R > 1) {
        vf_store_quarter<1>(p + ld, s);
    }
    if (R > 2) {
        vf_store_quarter<2>(p + 2*ld, s);
    }
    if (R > 3) {
        vf_store_quarter<3>(p + 3*ld, s);
    }
}

} // namespace rkv
