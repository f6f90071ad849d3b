#pragma once

// One small vector type for the attention kernels: LANES floats, with the few operations they need. N_VREG is how many
// the machine keeps in registers; UNPACK_ROWS, how many query rows must share a row of 16-bit floats before it pays to
// turn it to floats once.
//
// Three widths are written out (AVX-512, AVX2, and 16 bytes for everything else), so that every variant of the CPU
// backend runs the same algorithm. A fused multiply-add is spelled out: were it left to the compiler, two
// instantiations of one kernel could round differently, and results would depend on how rows are grouped.

#include "ggml-cpu-impl.h"
#include "simd-mappings.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "rkv-simd-avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "rkv-simd-avx2.h"
#else
#include "rkv-simd-generic.h"
#endif

// Unrolls the loop that follows, whose bounds are constants: an array that it indexes can then live in registers; or a few
// turns of it, when they are not.
#if defined(__clang__)
#define RKV_UNROLL _Pragma("clang loop unroll(full)")
#define RKV_UNROLL_FEW _Pragma("clang loop unroll_count(4)")
#elif defined(__GNUC__)
#define RKV_UNROLL _Pragma("GCC unroll 16")
#define RKV_UNROLL_FEW _Pragma("GCC unroll 4")
#else
#define RKV_UNROLL
#define RKV_UNROLL_FEW
#endif

// A function that only prefetches has no effect that GCC knows of, and calls to it are removed: it must be inlined.
#if defined(__GNUC__)
#define RKV_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define RKV_INLINE __forceinline
#else
#define RKV_INLINE inline
#endif

// The compiler forgets what it knows of a pointer: it computes addresses anew after a loop, which it would else keep in registers
// meanwhile. Or it keeps a variable in memory.
#if defined(__GNUC__)
#define RKV_FORGET(p) __asm__("" : "+r"(p))
#define RKV_KEEP(x) __asm__("" : "+m"(x))
#else
#define RKV_FORGET(p) (void) (p)
#define RKV_KEEP(x) (void) (x)
#endif

namespace rkv {

static constexpr int LINE = 64; // bytes of a line of the caches

// Hint that the line at `p` will be read: later (the second-level cache is enough, the first is too small for a tile), or next.
static RKV_INLINE void prefetch_line(const void * p) {
#if defined(RKV_PREFETCH_LINE)
    RKV_PREFETCH_LINE(p); // a test looks at what is asked for
#elif defined(__GNUC__)
    __builtin_prefetch(p, 0, 2);
#elif defined(_M_X64)
    _mm_prefetch((const char *) p, _MM_HINT_T1);
#else
    (void) p;
#endif
}
static RKV_INLINE void prefetch_next(const void * p) {
#if defined(__GNUC__)
    __builtin_prefetch(p, 0, 3);
#elif defined(_M_X64)
    _mm_prefetch((const char *) p, _MM_HINT_T0);
#else
    (void) p;
#endif
}

static inline int round_up_lanes(int n) {
    return (n + LANES - 1) / LANES * LANES;
}

// Sums of 4 x R vectors, R <= 4: those of a[r] go to p + r*ld. Each sum is the same tree of additions wherever its vector
// stands, and whatever R is.
#ifndef RKV_HAS_SUMS
template <int R> static inline void vf_sums(float * p, int ld, const vf (*a)[4]) {
    for (int r = 0; r < R; ++r) {
        vf_sum4(p + r*ld, a[r][0], a[r][1], a[r][2], a[r][3]);
    }
}
#endif

// Sum of the lanes, by the tree of vf_sums.
static inline float vf_hsum(vf a) {
    const vf all[1][4] = { { a, a, a, a } };
    float s[4];
    vf_sums<1>(s, 0, all);
    return s[0];
}

// s, but -inf where m is -inf: a NaN in `s` cannot pass a masked lane.
static inline vf vf_apply_mask(vf s, vf m) {
    return vf_select_lt(m, vf_set1(-FLT_MAX), m, s);
}

// e^x for x <= 0; 0 below the smallest normal float; NaN stays NaN. Within 1 ulp.
static inline vf vf_exp(vf x) {
    const vf least = vf_set1(-87.3365f);
    const vf magic = vf_set1(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
    const vf xc    = vf_max(least, x);
    const vf z     = vf_fma(xc, vf_set1(1.44269504f), magic);
    const vf n     = vf_sub(z, magic);
    vf r = vf_fma(n, vf_set1(-0.693359375f), xc);
    r    = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.381446695e-03f);
    p = vf_fma(p, r, vf_set1(8.368780410e-03f));
    p = vf_fma(p, r, vf_set1(4.166839421e-02f));
    p = vf_fma(p, r, vf_set1(1.666652011e-01f));
    p = vf_fma(p, r, vf_set1(4.999999341e-01f));
    const vf y = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set1(1.0f));
    return vf_select_lt(x, least, vf_zero(), vf_mul(y, vf_pow2_of_magic(z)));
}

// tanh: an odd polynomial near 0, where the quotient would lose the low bits.
static inline vf vf_tanh(vf x) {
    const vf a = vf_max(x, vf_sub(vf_zero(), x));
    const vf z = vf_mul(x, x);
    vf p = vf_set1(-5.664775361e-03f);
    p = vf_fma(p, z, vf_set1(2.061599617e-02f));
    p = vf_fma(p, z, vf_set1(-5.373862424e-02f));
    p = vf_fma(p, z, vf_set1(1.333154196e-01f));
    p = vf_fma(p, z, vf_set1(-3.333329255e-01f));
    const vf near0 = vf_fma(vf_mul(x, z), p, x);

    const vf one = vf_set1(1.0f);
    const vf e   = vf_exp(vf_mul(a, vf_set1(-2.0f)));
    const vf t   = vf_div(vf_sub(one, e), vf_add(one, e));
    const vf far = vf_select_lt(x, vf_zero(), vf_sub(vf_zero(), t), t);
    return vf_select_lt(a, vf_set1(0.625f), near0, far);
}

// Scaled and capped logit of a raw dot product. With a cap, `scale` was already divided by it.
static inline vf vf_logit(vf s, float scale, float softcap) {
    const vf x = vf_mul(s, vf_set1(scale));
    return softcap == 0.0f ? x : vf_mul(vf_set1(softcap), vf_tanh(x));
}

} // namespace rkv
