#pragma once

// Rows of bytes, moved word by word.

#include "rkv-hd.h"

#include <stdint.h>

namespace rkv {

struct alignas(16) words4 {
    uint32_t w[4];
};

// Rows one behind the other. `word`: bytes that a thread moves at once, a divisor of everything here.
struct pull_rows {
    char       * dst;
    const char * src;
    int64_t      stride; // of src, bytes
    int64_t      width;  // bytes
    int64_t      rows;

    RKV_HD int64_t words(int word) const { return rows*width/word; }
};

template <typename WORD> RKV_HD void pull_word(const pull_rows & a, int64_t i) {
    const int64_t at = i*int64_t(sizeof(WORD));
    *(WORD *) (a.dst + at) = *(const WORD *) (a.src + at/a.width*a.stride + at%a.width);
}

// The widest word that divides addresses and sizes.
RKV_HD int pull_word_bytes(const pull_rows & a) {
    const uint64_t all = uint64_t((uintptr_t) a.dst) | uint64_t((uintptr_t) a.src) | uint64_t(a.width) | (a.rows > 1 ? uint64_t(a.stride) : 0);
    return all%16 == 0 ? 16 : all%4 == 0 ? 4 : all%2 == 0 ? 2 : 1;
}

} // namespace rkv
