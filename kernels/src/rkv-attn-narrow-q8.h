#pragma once

// Scores of q8_0 rows of K in whole numbers, where the processor multiplies bytes (AVX-512 VNNI).
//
// The elements of a query row that meet a block are rounded to 24 bits of the largest of them and split into three signed bytes.
// Products of bytes and their sums are exact, so all that is lost is 2^-24 of that element, no more than floats lose on the way.
// The cells of a vector lie side by side in it: nothing is summed across lanes, and quants are never turned to floats.

#include "rkv-attn-ahead.h"
#include "rkv-simd.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define RKV_Q8_DOTS
#endif

namespace rkv {

static constexpr int Q8_BLOCK = 32; // elements of a block_q8_0
static constexpr int Q8_BYTES = 3;  // of an element of a query

// What meets one block: element i is scale*(bytes[0][i] + 256*bytes[1][i] + 65536*bytes[2][i]).
struct q8_query {
    int8_t  bytes[Q8_BYTES][Q8_BLOCK];
    int32_t start[Q8_BYTES]; // -128 times their sum: quants are multiplied as unsigned bytes, larger by 128 than they are
    float   scale;
};

#if defined(RKV_Q8_DOTS)

static constexpr int  Q8_CELLS = 2*LANES; // that are scored at once
static constexpr bool Q8_DOTS  = true;

// A query row of n_block blocks; block b goes to out[b*ld].
void q8_query_make(const float * q, int n_block, q8_query * out, int ld);

// Rows of Q8_CELLS consecutive cells, and of query rows: block b of row r is q[b*ld_q + r].
struct q8_rows {
    const char     * k;
    size_t           nb_cell; // bytes
    int              n_block;
    const q8_query * q;
    int              n_row;
    int              ld_q;
};

static constexpr int Q8_PAIRS = 8; // of lines that are asked for with each block: a little less than is read

// s[r*ld + c] = k[c] . q[r]
void q8_scores(const q8_rows & w, read_ahead::lines & ahead, float * s, int ld);

#else

static constexpr int  Q8_CELLS = 1;
static constexpr bool Q8_DOTS  = false;

#endif

} // namespace rkv
