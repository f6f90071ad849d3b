#pragma once

// Small matrix products in f32 with operands that were packed for it. Every element of the result is one chain of fused
// multiply-adds in ascending k, however the matrix is cut in blocks.

#include "rkv-simd.h"

namespace rkv {

// Rows and vectors of a block of C that stay in registers.
static constexpr int GEMM_ROWS = 6;
static constexpr int GEMM_VECS = N_VREG == 32 ? 4 : 2;

// How A is stored: element (i, k) at a[i*ld + k], or at a[k*ld + i].
enum class a_order { by_row, by_k };

template <int R, int V, a_order ORDER>
static inline void gemm_block(const float * a, size_t lda, const float * b, size_t ldb, int k, float * c, size_t ldc,
                              bool first) {
    vf acc[R][V];
    RKV_UNROLL
    for (int i = 0; i < R; ++i) {
        RKV_UNROLL
        for (int j = 0; j < V; ++j) {
            acc[i][j] = first ? vf_zero() : vf_load(c + i*ldc + j*LANES);
        }
    }
    for (int kk = 0; kk < k; ++kk) {
        vf x[V];
        RKV_UNROLL
        for (int j = 0; j < V; ++j) {
            x[j] = vf_load(b + kk*ldb + j*LANES);
        }
        RKV_UNROLL
        for (int i = 0; i < R; ++i) {
            const vf y = vf_set1(ORDER == a_order::by_row ? a[i*lda + kk] : a[kk*lda + i]);
            RKV_UNROLL
            for (int j = 0; j < V; ++j) {
                acc[i][j] = vf_fma(x[j], y, acc[i][j]);
            }
        }
    }
    RKV_UNROLL
    for (int i = 0; i < R; ++i) {
        RKV_UNROLL
        for (int j = 0; j < V; ++j) {
            vf_store(c + i*ldc + j*LANES, acc[i][j]);
        }
    }
}

// All rows of C for V vectors of columns.
template <int V, a_order ORDER>
static void gemm_panel(const float * a, size_t lda, const float * b, size_t ldb, int m, int k, float * c, size_t ldc,
                       bool first) {
    int i = 0;
    const size_t step = ORDER == a_order::by_row ? lda : 1;
    for (; i + GEMM_ROWS <= m; i += GEMM_ROWS) {
        gemm_block<GEMM_ROWS, V, ORDER>(a + i*step, lda, b, ldb, k, c + i*ldc, ldc, first);
    }
    a += i*step;
    c += i*ldc;
    switch (m - i) {
        case 5: gemm_block<5, V, ORDER>(a, lda, b, ldb, k, c, ldc, first); break;
        case 4: gemm_block<4, V, ORDER>(a, lda, b, ldb, k, c, ldc, first); break;
        case 3: gemm_block<3, V, ORDER>(a, lda, b, ldb, k, c, ldc, first); break;
        case 2: gemm_block<2, V, ORDER>(a, lda, b, ldb, k, c, ldc, first); break;
        case 1: gemm_block<1, V, ORDER>(a, lda, b, ldb, k, c, ldc, first); break;
        default: break;
    }
}

// c: [m, ldc] = a: [m, k] . b: [k, ldb], or += unless `first`. n columns, a whole number of vectors.
template <a_order ORDER>
static void gemm(const float * a, size_t lda, const float * b, size_t ldb, int m, int n, int k, float * c, size_t ldc,
                 bool first) {
    int j = 0;
    for (; j + GEMM_VECS*LANES <= n; j += GEMM_VECS*LANES) {
        gemm_panel<GEMM_VECS, ORDER>(a, lda, b + j, ldb, m, k, c + j, ldc, first);
    }
    for (; j + 2*LANES <= n; j += 2*LANES) {
        gemm_panel<2, ORDER>(a, lda, b + j, ldb, m, k, c + j, ldc, first);
    }
    for (; j < n; j += LANES) {
        gemm_panel<1, ORDER>(a, lda, b + j, ldb, m, k, c + j, ldc, first);
    }
}

} // namespace rkv
