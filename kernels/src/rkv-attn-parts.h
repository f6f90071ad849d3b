#pragma once

// A tile's query rows in even parts: whole KV heads, or even shares of each KV head's rows, so that a part never mixes rows of a
// KV head with some of another.

#include "rkv-attn-args.h"

namespace rkv {

struct row_parts {
    int n         = 1; // parts
    int n_head_kv = 1;
    int of_head   = 1; // query rows of a KV head

    // So many that the scores of a part stay in the second-level cache.
    static row_parts of_cache(const attn_args & a);

    // Cuts finer until there are `wanted`, if there are as many rows.
    void at_least(int64_t wanted);

    // First query row of a part; begin(n) is their count.
    int begin(int part) const;

    // Query rows of the largest part.
    int rows_max() const;
};

} // namespace rkv
