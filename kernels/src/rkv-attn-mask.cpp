#include "rkv-attn-mask.h"

#include <algorithm>

namespace rkv {

static int n_blocks(const attn_args & a, int q_block) {
    return (a.n_q + q_block - 1) / q_block;
}

static int n_mask_stream(const attn_args & a) {
    return a.mask ? (int) a.mask->ne[3] : 0;
}

size_t mask_table::size_bytes(const attn_args & a, int q_block) {
    return sizeof(tile_mask) * n_mask_stream(a) * n_blocks(a, q_block) * a.n_tile;
}

mask_table::mask_table(const attn_args & a, int q_block, tile_mask * entries)
    : a(a), entries(entries), q_block(q_block), n_q_block(n_blocks(a, q_block)) {
}

// Adds one mask row of n cells to what is known of its tile.
static void scan_row(const uint16_t * m, int n, tile_mask & e) {
    uint16_t bits = 0;
    uint16_t dead = 0xffff;
    for (int c = 0; c < n; ++c) {
        bits |= (uint16_t) (m[c] & 0x7fff);
        dead &= (uint16_t) (m[c] == F16_NEG_INF ? 0xffff : 0);
    }
    if (bits != 0) {
        e.plain = 0;
    }
    if (dead != 0) {
        return;
    }
    e.n_rows++;
    int c = 0;
    while (c < e.begin && m[c] == F16_NEG_INF) {
        ++c;
    }
    e.begin = c;
    c = n;
    while (c > e.end && m[c - 1] == F16_NEG_INF) {
        --c;
    }
    e.end = c;
}

// What the queries [q0, q1) see of tile t.
static tile_mask scan(const attn_args & a, int stream, int q0, int q1, int t) {
    const int n = a.tile_cells(t);
    tile_mask e = { n, 0, 0, 1 };
    for (int plane = 0; plane < a.mask->ne[2]; ++plane) {
        for (int iq = q0; iq < q1; ++iq) {
            scan_row(a.mask_row(stream, plane, iq) + a.tile_begin(t), n, e);
        }
    }
    return e;
}

void mask_table::fill(int ith, int nth) {
    const int64_t n = (int64_t) n_mask_stream(a) * n_q_block * a.n_tile;
    for (int64_t i = ith; i < n; i += nth) {
        const int     t  = (int) (i % a.n_tile);
        const int64_t sb = i / a.n_tile;
        const int     q0 = (int) (sb % n_q_block) * q_block;
        entries[i] = scan(a, (int) (sb / n_q_block), q0, std::min(q0 + q_block, a.n_q), t);
    }
}

tile_mask mask_of_tile(const attn_args & a, int stream, int t) {
    return a.mask ? scan(a, stream, 0, a.n_q, t) : tile_mask{ 0, a.tile_cells(t), a.n_q, 1 };
}

tile_mask mask_table::at(int stream, int block, int t) const {
    if (t == a.drop_tile) {
        return { 0, 0, 0, 0 };
    }
    if (!a.mask) {
        return { 0, a.tile_cells(t), std::min(q_block, a.n_q - block * q_block), 1 };
    }
    return entries[((int64_t) (stream % a.mask->ne[3]) * n_q_block + block) * a.n_tile + t];
}

bool mask_table::is_live(int stream, int t) const {
    for (int block = 0; block < n_q_block; ++block) {
        if (is_live(stream, block, t)) {
            return true;
        }
    }
    return false;
}

} // namespace rkv
