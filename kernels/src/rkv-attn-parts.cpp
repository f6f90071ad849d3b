#include "rkv-attn-parts.h"

#include <algorithm>

namespace rkv {

static constexpr size_t SCORE_BYTES = 256u << 10;

row_parts row_parts::of_cache(const attn_args & a) {
    const size_t  row_bytes = std::min<int64_t>(a.tile, a.n_kv) * sizeof(float);
    const int64_t rows_fit  = std::max<size_t>(1, SCORE_BYTES / row_bytes);

    row_parts p;
    p.n_head_kv = a.n_head_kv;
    p.of_head   = a.n_gqa * a.n_q;
    p.at_least(((int64_t) a.n_head * a.n_q + rows_fit - 1) / rows_fit);
    return p;
}

void row_parts::at_least(int64_t wanted) {
    if (wanted > n_head_kv) {
        const int64_t shares = std::min<int64_t>((wanted + n_head_kv - 1) / n_head_kv, of_head);
        wanted = shares * n_head_kv;
    }
    n = (int) std::max<int64_t>(n, wanted);
}

int row_parts::begin(int part) const {
    if (n <= n_head_kv) {
        return (int) ((int64_t) n_head_kv * part / n) * of_head;
    }
    const int shares = n / n_head_kv;
    return part / shares * of_head + of_head * (part % shares) / shares;
}

int row_parts::rows_max() const {
    if (n <= n_head_kv) {
        return (n_head_kv + n - 1) / n * of_head;
    }
    const int shares = n / n_head_kv;
    return (of_head + shares - 1) / shares;
}

} // namespace rkv
