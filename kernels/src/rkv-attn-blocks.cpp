// A node of many queries, split by blocks of query rows: a thread walks all tiles of its block and merges as it goes.

#include "rkv-attn-drivers.h"
#include "rkv-attn-merge.h"
#include "rkv-attn-wide.h"
#include "rkv-simd.h"

#include <algorithm>

namespace rkv {

// Queries of a block, and query rows: the more, the less it weighs that K and V are unpacked for each block; but its
// scores, packed queries and outputs should stay in the second-level cache.
static constexpr int BLOCK_QUERIES = 64;
static constexpr int BLOCK_ROWS    = 128;
static constexpr int BLOCK_FLOATS  = 128*1024;

// Query rows below which unpacking would cost as much as the products.
static constexpr int BLOCK_QUERIES_MIN = 16;

// Blocks a thread: causal masks make them uneven, so they are handed out one by one.
static constexpr int BLOCKS_PER_THREAD = 4;

namespace {

struct block_shape {
    int q_block;   // queries of a block
    int n_heads;   // heads of a block, all of one KV head
};

struct blocks_buffers {
    tile_mask  * table;
    float      * o;       // [rows, d_v] of this thread: the running output of its block
    merge_state * state;  // [rows] of this thread
    merge_state * fed;    // [n_stream, n_head, n_q] of all threads, when there is a feed
    wide_scratch scratch; // of this thread
    size_t       bytes;
};

} // namespace

static int n_parts(int n, int size) {
    return (n + size - 1) / size;
}

static int64_t n_blocks(const attn_args & a, block_shape b) {
    return (int64_t) a.n_stream * a.n_head_kv * n_parts(a.n_gqa, b.n_heads) * n_parts(a.n_q, b.q_block);
}

// The largest block; with many threads blocks get smaller, but never the buffers larger.
static block_shape largest_block(const attn_args & a) {
    const int q_block = std::min(a.n_q, BLOCK_QUERIES);
    const int row     = (int) std::min<int64_t>(a.tile, a.n_kv) + a.d_k + 2*a.d_v; // floats
    const int rows    = std::min(BLOCK_ROWS, BLOCK_FLOATS / row);
    return { q_block, std::min(a.n_gqa, std::max(1, rows / q_block)) };
}

static block_shape choose_block(const attn_args & a, int nth) {
    block_shape b = largest_block(a);
    while (nth > 1 && n_blocks(a, b) < (int64_t) nth * BLOCKS_PER_THREAD) {
        if (b.n_heads > 1) {
            b.n_heads = (b.n_heads + 1) / 2;
        } else if (b.q_block > BLOCK_QUERIES_MIN) {
            b.q_block = std::max(b.q_block / 2, BLOCK_QUERIES_MIN);
        } else {
            break;
        }
    }
    return b;
}

static blocks_buffers carve(const attn_args & a, int ith, int nth, void * wdata) {
    const block_shape b = largest_block(a);
    const int n_rows    = b.q_block * b.n_heads;
    const int q_least   = std::min(b.q_block, BLOCK_QUERIES_MIN);

    arena mem(wdata);
    blocks_buffers buf;
    buf.table = mem.take<tile_mask>(mask_table::size_bytes(a, q_least) / sizeof(tile_mask));
    buf.fed   = mem.take<merge_state>(a.feed ? (size_t) a.n_stream * a.n_head * a.n_q : 0);
    for (int i = 0; i < nth; ++i) {
        float       * o     = mem.take<float>((size_t) n_rows * a.d_v);
        merge_state * state = mem.take<merge_state>(n_rows);
        wide_scratch  s     = wide_scratch::carve(mem, a, n_rows);
        if (i == ith) {
            buf.o       = o;
            buf.state   = state;
            buf.scratch = s;
        }
    }
    buf.bytes = mem.bytes();
    return buf;
}

// Block u of all; those of the last queries, which see most cells, come first.
static wide_block block_at(const attn_args & a, block_shape shape, int64_t u) {
    const int n_chunk = n_parts(a.n_gqa, shape.n_heads);
    const int n_qb    = n_parts(a.n_q, shape.q_block);

    const int64_t per_qb = (int64_t) a.n_stream * a.n_head_kv * n_chunk;
    const int     qb     = n_qb - 1 - (int) (u / per_qb);
    const int64_t rest   = u % per_qb;
    const int     chunk  = (int) (rest % n_chunk);
    const int     kv     = (int) (rest / n_chunk % a.n_head_kv);

    wide_block b;
    b.stream  = (int) (rest / n_chunk / a.n_head_kv);
    b.head0   = kv*a.n_gqa + chunk*shape.n_heads;
    b.n_heads = std::min(shape.n_heads, a.n_gqa - chunk*shape.n_heads);
    b.q0      = qb*shape.q_block;
    b.n_q     = std::min(shape.q_block, a.n_q - b.q0);
    return b;
}

static void compute_block(const attn_args & a, const wide_block & b, int q_block, const mask_table & table,
                          blocks_buffers & buf) {
    wide_scratch & s = buf.scratch;
    wide_begin(a, b, s);
    for (int r = 0; r < b.n_rows(); ++r) {
        buf.state[r] = merge_begin(buf.o + (size_t) r*a.d_v, a.d_v);
    }
    for (int i = 0; i < a.n_tile; ++i) {
        const int       tile = a.tile_at(i);
        const tile_mask mask = table.at(b.stream, b.q0 / q_block, tile);
        if (mask.begin >= mask.end) {
            continue;
        }
        wide_partial(a, b, tile, a.rows(b.stream, tile), mask, s);
        for (int r = 0; r < b.n_rows(); ++r) {
            merge_partial(buf.state[r], s.max[r], s.sum[r], s.o + (size_t) r*s.ld_o, a.d_v);
        }
    }
    for (int r = 0; r < b.n_rows(); ++r) {
        const int head = b.head0 + r / b.n_q;
        merge_finish(buf.state[r], a.sinks ? a.sinks + head : nullptr, a.d_v);
        memcpy(a.output(b.stream, head, b.q0 + r % b.n_q), buf.state[r].o, a.d_v*sizeof(float));
    }
}

namespace {

// A node with a feed: tiles are walked once, each over all blocks of the thread, so the running outputs of all blocks are
// kept, in the node's own output.
struct fed_blocks {
    const attn_args  & a;
    const block_shape  shape;
    const mask_table & table;
    blocks_buffers   & buf;
    const int          ith, nth;

    merge_state & state(const wide_block & b, int r) const {
        const size_t row = ((size_t) b.stream*a.n_head + b.head0 + r / b.n_q)*a.n_q + b.q0 + r % b.n_q;
        return buf.fed[row];
    }
    float * output(const wide_block & b, int r) const { return a.output(b.stream, b.head0 + r / b.n_q, b.q0 + r % b.n_q); }

    template <typename F> void for_own_blocks(int stream, F && f) const {
        for (int64_t u = ith; u < n_blocks(a, shape); u += nth) {
            const wide_block b = block_at(a, shape, u);
            if (b.stream == stream) {
                f(b);
            }
        }
    }
    void merge_tile(const wide_block & b, int tile, const tile_rows & rows) const;
    void begin(const wide_block & b, int n_tile) const;
    void walk(int stream) const;
};

} // namespace

void fed_blocks::merge_tile(const wide_block & b, int tile, const tile_rows & rows) const {
    const tile_mask mask = table.at(b.stream, b.q0 / shape.q_block, tile);
    if (mask.begin >= mask.end) {
        return;
    }
    const wide_scratch & s = buf.scratch;
    wide_partial(a, b, tile, rows, mask, buf.scratch);
    for (int r = 0; r < b.n_rows(); ++r) {
        merge_partial(state(b, r), s.max[r], s.sum[r], s.o + (size_t) r*s.ld_o, a.d_v);
    }
}

// The tiles before the first that is brought.
void fed_blocks::begin(const wide_block & b, int n_tile) const {
    wide_begin(a, b, buf.scratch);
    for (int r = 0; r < b.n_rows(); ++r) {
        state(b, r) = merge_begin(output(b, r), a.d_v);
    }
    for (int t = 0; t < n_tile; ++t) {
        merge_tile(b, t, a.rows(b.stream, t));
    }
}

void fed_blocks::walk(int stream) const {
    int first = 0;
    while (first < a.n_tile && !a.fed(stream, first)) {
        ++first;
    }
    for_own_blocks(stream, [&](const wide_block & b) { begin(b, first); });

    for (int t = first; t < a.n_tile; ++t) {
        const bool fed = a.fed(stream, t);
        if (table.is_live(stream, t)) {
            const tile_rows rows = fed ? a.rows_fed(stream, t) : a.rows(stream, t);
            for_own_blocks(stream, [&](const wide_block & b) {
                wide_begin(a, b, buf.scratch);
                merge_tile(b, t, rows);
            });
        }
        if (fed) {
            a.release_fed(stream, t, nth);
        }
    }
    for_own_blocks(stream, [&](const wide_block & b) {
        for (int r = 0; r < b.n_rows(); ++r) {
            merge_finish(state(b, r), a.sinks ? a.sinks + b.head0 + r / b.n_q : nullptr, a.d_v);
        }
    });
}

size_t blocks_work_size(const attn_args & a, int n_tasks) {
    return carve(a, 0, n_tasks, nullptr).bytes;
}

void blocks_compute(attn_args & a, const ggml_compute_params * params) {
    blocks_buffers buf = carve(a, params->ith, params->nth, params->wdata);
    GGML_ASSERT(buf.bytes <= params->wsize);

    const block_shape shape = choose_block(a, params->nth);
    mask_table table(a, shape.q_block, buf.table);
    table.fill(params->ith, params->nth);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    attn_begin(a, table, params);

    if (a.feed) {
        const fed_blocks fed = { a, shape, table, buf, params->ith, params->nth };
        for (int stream = 0; stream < a.n_stream; ++stream) {
            fed.walk(stream);
        }
        return;
    }

    const int64_t n = n_blocks(a, shape);
    for (int64_t u = params->ith; u < n; u = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        compute_block(a, block_at(a, shape, u), shape.q_block, table, buf);
    }
}

} // namespace rkv
