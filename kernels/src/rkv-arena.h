#pragma once

// Carves a work buffer in pieces. Carved from NULL it only counts, so that a size and the use of it cannot disagree.

#include <stddef.h>
#include <stdint.h>

namespace rkv {

class arena {
public:
    explicit arena(void * base) : base((char *) base) {}

    // n elements of T, on a cache line of its own.
    template <typename T> T * take(size_t n) {
        used = aligned(used);
        T * p = base ? (T *) (base + used) : nullptr;
        used += n * sizeof(T);
        return p;
    }

    // Bytes carved, with room for a base that does not start on a cache line.
    size_t bytes() const { return aligned(used) + line; }

private:
    static constexpr size_t line = 64;

    char * base;
    size_t used = 0;

    size_t aligned(size_t at) const {
        const uintptr_t from = (uintptr_t) base;
        return ((from + at + line - 1) & ~(uintptr_t) (line - 1)) - from;
    }
};

} // namespace rkv
