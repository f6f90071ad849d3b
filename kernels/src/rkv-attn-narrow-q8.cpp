#include "rkv-attn-narrow-q8.h"

#include "ggml-cpu-impl.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

#if defined(RKV_Q8_DOTS)

namespace rkv {

static_assert(Q8_BLOCK == QK8_0, "quants of a block");

static constexpr int N_ROW_MAX = 4;
static constexpr int N_COLUMN  = Q8_BLOCK / 4; // of four quants
static constexpr int HALVES    = Q8_CELLS / LANES;

static constexpr __mmask8 ALL8 = 0xff;

//
// queries
//

// The largest whole number: its bytes are -128 to 127 however it was rounded.
static constexpr float LARGEST = 8355000.0f;

// 128 times the sum of 32 signed bytes.
static int32_t sum_128(__m256i bytes) {
    const __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8((char) 128), bytes);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return _mm_cvtsi128_si32(t);
}

// Whole numbers whose bytes are the signed ones.
static __m512i bytes_of(vf x, vf by) {
    const __m512i half = _mm512_set1_epi32(0x00808080);
    return _mm512_xor_si512(_mm512_add_epi32(_mm512_maskz_cvtps_epi32(EVERY, vf_mul(x, by)), half), half);
}

static float largest_of(vf x, vf y) {
    const __m512i size = _mm512_set1_epi32(INT32_MAX);
    const vf a = _mm512_castsi512_ps(_mm512_and_si512(size, _mm512_castps_si512(x)));
    const vf b = _mm512_castsi512_ps(_mm512_and_si512(size, _mm512_castps_si512(y)));
    return vf_hmax(vf_max(a, b));
}

// A block with a NaN or an infinity has a scale that is one.
static void make_block(const float * q, q8_query & out) {
    const vf    x = vf_load(q), y = vf_load(q + LANES);
    const vf    zero = vf_zero();
    const float top  = largest_of(x, y);
    const float inv  = LARGEST / top;
    const vf    by   = vf_set1(inv <= FLT_MAX ? inv : 0.0f); // else they are next to zero

    __m512i i = bytes_of(x, by), j = bytes_of(y, by);
    for (int k = 0; k < Q8_BYTES; ++k) {
        const __m128i lo  = _mm512_maskz_cvtepi32_epi8(EVERY, i), hi = _mm512_maskz_cvtepi32_epi8(EVERY, j);
        const __m256i all = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
        _mm256_storeu_si256((__m256i *) out.bytes[k], all);
        out.start[k] = -sum_128(all);
        i = _mm512_maskz_srli_epi32(EVERY, i, 8);
        j = _mm512_maskz_srli_epi32(EVERY, j, 8);
    }
    const float poison = vf_hsum(vf_add(vf_mul(x, zero), vf_mul(y, zero))); // 0, or NaN
    out.scale = top / LARGEST + poison;
}

void q8_query_make(const float * q, int n_block, q8_query * out, int ld) {
    for (int b = 0; b < n_block; ++b) {
        make_block(q + b*Q8_BLOCK, out[b*ld]);
    }
}

//
// scores
//

namespace {

// One block of sixteen cells. Few addresses: with sixteen, the compiler keeps some of them in vector registers.
struct block_rows {
    const char * p[4]; // of cells 0, 4, 8 and 12
    size_t       nb, nb3;

    block_rows(const char * k, size_t nb) : p{ k, k + 4*nb, k + 8*nb, k + 12*nb }, nb(nb), nb3(3*nb) {}

    RKV_INLINE const char * at(int quarter, int i) const {
        return p[quarter] + (i == 0 ? 0 : i == 1 ? nb : i == 2 ? 2*nb : nb3);
    }
    RKV_INLINE void move(ptrdiff_t bytes) {
        RKV_UNROLL
        for (int j = 0; j < 4; ++j) {
            p[j] += bytes;
            RKV_FORGET(p[j]);
        }
    }
};

// Lines to bring nearer while a block is multiplied, a few at a time: many at once are waited for.
struct nearer {
    const char        * p;  // a row that is read next
    size_t              nb; // to the one after it; 0: no line begins with this block
    read_ahead::lines & ahead;

    RKV_INLINE void some() {
        if (nb) {
            RKV_UNROLL
            for (int i = 0; i < Q8_CELLS / N_COLUMN; ++i, p += nb) {
                prefetch_next(p);
            }
        }
        ahead.ask<Q8_PAIRS / N_COLUMN>();
    }
};

} // namespace

// Sixteen bytes of cells i, i + 4, i + 8 and i + 12, as unsigned ones.
static RKV_INLINE __m512i load_quarters(const block_rows & r, int i, int at) {
    const auto load = [&](int quarter) { return _mm_loadu_si128((const __m128i *) (r.at(quarter, i) + at)); };
    __m512i x = _mm512_zextsi128_si512(load(0));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, load(1));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, load(2));
    x = _mm512_mask_broadcast_i32x4(x, 0xf000, load(3));
    return _mm512_xor_si512(x, _mm512_set1_epi8((char) 128));
}

// Columns of four quants, of sixteen cells each, from four of sixteen quants.
static RKV_INLINE void load_columns(const block_rows & r, int at, __m512i * out) {
    const __m512i a = load_quarters(r, 0, at), b = load_quarters(r, 1, at), c = load_quarters(r, 2, at), d = load_quarters(r, 3, at);
    const __m512i ab = _mm512_maskz_unpacklo_epi32(EVERY, a, b), AB = _mm512_maskz_unpackhi_epi32(EVERY, a, b);
    const __m512i cd = _mm512_maskz_unpacklo_epi32(EVERY, c, d), CD = _mm512_maskz_unpackhi_epi32(EVERY, c, d);
    out[0] = _mm512_maskz_unpacklo_epi64(ALL8, ab, cd);
    out[1] = _mm512_maskz_unpackhi_epi64(ALL8, ab, cd);
    out[2] = _mm512_maskz_unpacklo_epi64(ALL8, AB, CD);
    out[3] = _mm512_maskz_unpackhi_epi64(ALL8, AB, CD);
}

static RKV_INLINE __m512i four_bytes(const int8_t * p) {
    int32_t x;
    memcpy(&x, p, sizeof(x));
    return _mm512_set1_epi32(x);
}

// The dot of a block, from its sums.
static RKV_INLINE vf dot_of(const __m512i * sum) {
    const __m512i low = _mm512_add_epi32(_mm512_maskz_slli_epi32(EVERY, sum[1], 8), sum[0]);
    return vf_fma(_mm512_maskz_cvtepi32_ps(EVERY, sum[2]), vf_set1(65536.0f), _mm512_maskz_cvtepi32_ps(EVERY, low));
}

struct block_columns {
    __m512i quants[HALVES][N_COLUMN];
    vf      scale[HALVES];
};

// Adds a block's dots to the scores of R query rows, or begins with them.
template <int R, bool FIRST>
static RKV_INLINE void dot_block(const block_columns & x, const q8_query * q, bool begin, float * s, int ld, nearer & near) {
    __m512i sum[HALVES][R][Q8_BYTES];
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        RKV_UNROLL
        for (int k = 0; k < Q8_BYTES; ++k) {
            sum[0][r][k] = sum[1][r][k] = _mm512_set1_epi32(q[r].start[k]);
        }
    }
    RKV_UNROLL
    for (int i = 0; i < N_COLUMN; ++i) {
        if (FIRST) {
            near.some();
        }
        const __m512i x0 = x.quants[0][i], x1 = x.quants[1][i];
        RKV_UNROLL
        for (int r = 0; r < R; ++r) {
            RKV_UNROLL
            for (int k = 0; k < Q8_BYTES; ++k) {
                const __m512i y = four_bytes(q[r].bytes[k] + 4*i);
                sum[0][r][k] = _mm512_dpbusd_epi32(sum[0][r][k], x0, y);
                sum[1][r][k] = _mm512_dpbusd_epi32(sum[1][r][k], x1, y);
            }
        }
    }
    RKV_UNROLL
    for (int r = 0; r < R; ++r) {
        const vf scale = vf_set1(q[r].scale);
        RKV_UNROLL
        for (int h = 0; h < HALVES; ++h) {
            float * out = s + r*ld + h*LANES;
            vf_store(out, vf_fma(dot_of(sum[h][r]), vf_mul(x.scale[h], scale), begin ? vf_zero() : vf_load(out)));
        }
    }
}

template <bool FIRST>
static RKV_INLINE void dot_rows(const block_columns & x, const q8_query * q, int n, bool begin, float * s, int ld, nearer & near) {
    switch (n) {
        case 1:  dot_block<1, FIRST>(x, q, begin, s, ld, near); break;
        case 2:  dot_block<2, FIRST>(x, q, begin, s, ld, near); break;
        case 3:  dot_block<3, FIRST>(x, q, begin, s, ld, near); break;
        default: dot_block<N_ROW_MAX, FIRST>(x, q, begin, s, ld, near); break;
    }
}

void q8_scores(const q8_rows & w, read_ahead::lines & ahead, float * s, int ld) {
    const ptrdiff_t nb   = (ptrdiff_t) w.nb_cell;
    const __m512i   each = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i   cell = _mm512_mullo_epi32(_mm512_set1_epi32((int) nb), each);
    block_rows   rows(w.k, w.nb_cell);
    const char * next = w.k + Q8_CELLS*nb;
    block_columns x;
    for (int b = 0; b < w.n_block; ++b, next += sizeof(block_q8_0)) {
        RKV_UNROLL
        for (int h = 0; h < HALVES; ++h) {
            const __m512i scales = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), EVERY, cell, rows.p[0], 1);
            load_columns(rows, offsetof(block_q8_0, qs), x.quants[h]);
            load_columns(rows, offsetof(block_q8_0, qs) + Q8_BLOCK/2, x.quants[h] + N_COLUMN/2);
            x.scale[h] = _mm512_maskz_cvtph_ps(EVERY, _mm512_maskz_cvtepi32_epi16(EVERY, scales));
            rows.move(h + 1 < HALVES ? LANES*nb : (ptrdiff_t) sizeof(block_q8_0) - (HALVES - 1)*LANES*nb);
        }
        RKV_KEEP(x); // there are not as many registers
        const bool line = b*(int) sizeof(block_q8_0) % LINE < (int) sizeof(block_q8_0);
        nearer near = { next, line ? w.nb_cell : 0, ahead };
        const q8_query * q = w.q + (size_t) b*w.ld_q;
        dot_rows<true>(x, q, w.n_row, b == 0, s, ld, near);
        for (int r = N_ROW_MAX; r < w.n_row; r += N_ROW_MAX) {
            dot_rows<false>(x, q + r, w.n_row - r, b == 0, s + (size_t) r*ld, ld, near);
        }
    }
}

} // namespace rkv

#endif
