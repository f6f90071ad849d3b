#pragma once

// How the narrow passes read a row of K or V: some consecutive elements at a time, which share one scale.

#include "rkv-simd.h"

#include "ggml-cpu-impl.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace rkv {

template <typename T> struct row_reader {
    static constexpr int GROUP = LANES; // elements

    struct scale {};

    const T * p;

    explicit row_reader(const char * row) : p((const T *) row) {}

    // Bytes from the row's begin to element i, the first of a group.
    static constexpr int offset(int i) { return i*(int) sizeof(T); }
    static constexpr int bytes(int n) { return offset(n); }

    RKV_INLINE const char * at(int i) const { return (const char *) p + offset(i); }

    RKV_INLINE scale scale_at(int) const { return {}; }
    RKV_INLINE vf    load(int i, scale) const { return vf_load(p + i); }
    RKV_INLINE vf    load_part(int i, int n) const { return vf_load_part(p + i, n); }
};

// The products of quant and scale are rounded to floats as they are when a row is unpacked first, so the bits are the same.
template <> struct row_reader<block_q8_0> {
    static constexpr int GROUP = 32;

    typedef vf scale;

    const block_q8_0 * b;

    explicit row_reader(const char * row) : b((const block_q8_0 *) row) {}

    static constexpr int offset(int i) { return i / GROUP * (int) sizeof(block_q8_0); }
    static constexpr int bytes(int n) { return offset(n + GROUP - 1); }

    RKV_INLINE const char * at(int i) const { return (const char *) b + offset(i); }

    // From the table: converting would take turns of the ports that multiply.
    RKV_INLINE scale scale_at(int i) const { return vf_set1(ggml_table_f32_f16[b[i / GROUP].d]); }
    RKV_INLINE vf    load(int i, scale d) const { return vf_mul(vf_load(b[i / GROUP].qs + i % GROUP), d); }
    RKV_INLINE vf    load_part(int, int) const { return vf_zero(); } // rows are whole blocks
};

} // namespace rkv
