// Attention over a window and a tail on a CUDA device.
//
// Up to 16 queries, a partial is made for every tile, in place for the window and in the ring's slots for the tail, and partials are merged
// in the order of their tiles: the bits are the same wherever a tile lay. For more queries the tail is put next to the window, through
// the same slots, and upstream's own kernel computes the layer: it is by far the fastest for many queries, and its bits are stock's.
// Walking the ring with partials instead would save the room for one layer, but upstream's matrix kernels give away no maximum and sum
// unless they split a row themselves, and ours, without tensor cores, would take several times as long for a long prompt.
//
// Everything that a node computes in lies behind its own result: rkv_cuda_alloc_size tells ggml's allocator, so that it is reserved when the
// context is made, and nothing is allocated while the node runs.
//
// CUDA graphs. A captured graph is launched as a whole, and an event can only be waited for as it was recorded before the launch. A copy
// into a slot waits for a reader in the middle of the step, and a later reader for that copy, so a step that brings tiles cannot be one
// captured graph, unless its copies are captured with fixed slots and sizes; and then nothing could run ahead into the next step. Such
// a graph is launched kernel by kernel, which the log says. Where the link is what a step waits for, launches cost nothing: the
// host runs ahead of the device. A graph in which no tail is read is captured as ever; our kernels read nothing that changes from step to
// step but through the tensors' own addresses.
//
// A host engine for the tail would sit in `attend`: instead of acquiring a tile, the query goes down in a small copy, a host function in
// the stream (cudaLaunchHostFunc) computes the partials of its tiles while the stream goes on with the window, and they come up into
// the same array that the merge reads.

#include "rkv-cuda.h"

#include "rkv-cuda-buffer.h"
#include "rkv-cuda-kernels.cuh"
#include "rkv-cuda-ring.h"

#include "rkv-attn-args.h"
#include "rkv-attn-node.h"
#include "rkv-backend.h"
#include "rkv-set-rows.h"

#include "common.cuh"
#include "fattn.cuh"
#include "ggml-backend-impl.h"
#include "ggml-cuda.h"
#include "ggml-impl.h"

#include <algorithm>
#include <atomic>
#include <cstring>

using rkv::attn_args;

namespace {

// Partials are kept for as many tiles as fit; then they are merged, and the next tiles begin.
constexpr size_t ROUND_BYTES = size_t(32) << 20;
constexpr size_t ALIGNMENT   = 256;

size_t aligned(size_t bytes) {
    return GGML_PAD(bytes, ALIGNMENT);
}

bool is_tiled(const ggml_tensor * node) {
    return node->op == GGML_OP_FLASH_ATTN_EXT && rkv::attn_tile(node) != 0;
}

bool is_split(const ggml_tensor * node) {
    return node->op == GGML_OP_SET_ROWS && node->src[RKV_SET_ROWS_SRC_TAIL] != nullptr;
}

bool in_any_tail(const ggml_tensor * t) {
    for (int i = 0; i < ggml_backend_cuda_get_device_count(); ++i) {
        if (rkv_cuda_in_tail(i, t)) {
            return true;
        }
    }
    return false;
}

// Where partials lie behind the node's result.
struct decode_room {
    size_t state;  // [rows, 2], of the stream that is computed
    size_t sums;   // [tiles of a round, rows, 2]
    size_t o;      // [tiles of a round, rows, d_v]
    size_t bytes;  // with the result
    int    n_tile; // of a round

    decode_room(const attn_args & a, int n_q) {
        const size_t rows  = size_t(a.n_head)*n_q;
        const size_t place = rows*(a.d_v + 2)*sizeof(float);
        const size_t fits  = std::max<size_t>(1, ROUND_BYTES/place);
        n_tile = int(std::min<size_t>({ fits, size_t(a.n_tile), size_t(rkv::MERGE_TILES_MAX) }));
        state  = aligned(ggml_nbytes(a.dst));
        sums   = aligned(state + rows*2*sizeof(float));
        o      = aligned(sums + n_tile*rows*2*sizeof(float));
        // A bound that grows with the node: what is reserved for a long one is enough for a shorter one.
        bytes  = sums + ALIGNMENT + std::min(size_t(a.n_tile)*place, std::max(ROUND_BYTES, place));
    }
};

// The node as it is with every cell in one part.
struct gathered {
    ggml_tensor node;
    ggml_tensor k;
    ggml_tensor v;
    bool        v_within_k;
    size_t      v_in_row;   // offset of V in K's rows, where it is a part of them
    size_t      k_at, v_at; // behind the node's result
    size_t      bytes;      // with the result

    // `packed`: K and V get a place of their own, one row behind the other.
    gathered(int device, const attn_args & a, bool packed) : node(*a.dst), k(*a.part_k[0]), v(*a.part_v[0]) {
        node.src[1] = &k;
        node.src[2] = &v;
        node.src[RKV_ATTN_SRC_K_TAIL] = nullptr;
        node.src[RKV_ATTN_SRC_V_TAIL] = nullptr;
        node.op_params[RKV_OP_PARAM_TILE] = 0;

        // An MLA cache: V is the first columns of K, at no offset of its own when addresses are not known yet.
        v_within_k = k.view_src && k.view_src == v.view_src;
        v_in_row   = v_within_k ? v.view_offs - k.view_offs : 0;
        if (packed) {
            pack(k, a.n_kv);
            if (v_within_k) {
                memcpy(v.nb, k.nb, sizeof(v.nb));
                v.ne[1] = a.n_kv;
            } else {
                pack(v, a.n_kv);
            }
        }
        const size_t stock = ggml_cuda_flash_attn_ext_get_alloc_size(device, &node);
        k_at  = aligned(stock);
        v_at  = v_within_k ? k_at + v_in_row : aligned(k_at + bytes_of(k));
        bytes = !packed ? stock : v_within_k ? k_at + bytes_of(k) : v_at + bytes_of(v);
    }

    gathered(const gathered &) = delete;
    gathered & operator=(const gathered &) = delete;

    static void pack(ggml_tensor & t, int64_t n_kv) {
        t.ne[1] = n_kv;
        t.nb[1] = row_width(t);
        t.nb[3] = t.nb[1]*n_kv;
    }
    // Bytes of a cell with all its heads.
    static size_t row_width(const ggml_tensor & t) { return (t.ne[2] - 1)*t.nb[2] + ggml_row_size(t.type, t.ne[0]); }
    static size_t bytes_of(const ggml_tensor & t) { return t.nb[3]*t.ne[3]; }
};

// Whether the cells do not lie as upstream's kernels read them.
bool is_apart(const attn_args & a) {
    return a.part_k[1] || in_any_tail(a.part_k[0]);
}

//
// few queries
//

class decode_pass {
public:
    decode_pass(const attn_args & a, cudaStream_t stream, int of_stream, int drop_tile, const char * zero_row)
        : a(a), stream(stream), of_stream(of_stream), drop_tile(drop_tile), fault(rkv_fault_get()), zero_row(zero_row), room(a, a.n_q) {}

    // Tiles [tile0, tile0 + n) of the stream, in ascending order over all calls.
    void add(int tile0, int n, const rkv::tile_rows & rows) {
        if (fault == RKV_FAULT_STALE_TILE && a.part_k[1] && tile0 == a.n_tile_win && zero_row) {
            add_some(tile0, 1, { zero_row, zero_row, 0, 0, 0, 0, 0 });
            if (n > 1) {
                add_some(tile0 + 1, n - 1, behind(rows, 1));
            }
            return;
        }
        add_some(tile0, n, rows);
    }

    // Merges what is left, and ends the rows.
    void finish() {
        while (round0 < a.n_tile) {
            merge();
        }
    }

private:
    const attn_args & a;
    cudaStream_t      stream;
    int               of_stream;
    int               drop_tile;
    rkv_fault         fault;
    const char *      zero_row;
    decode_room       room;
    int               round0 = 0; // first tile of the round
    int               n_made = 0; // tiles of the round

    rkv::tile_rows behind(rkv::tile_rows rows, int n) const {
        rows.k += int64_t(n)*a.tile*rows.k_nb_cell;
        rows.v += int64_t(n)*a.tile*rows.v_nb_cell;
        return rows;
    }

    char * at(size_t offset) const { return (char *) a.dst->data + offset; }

    void add_some(int tile0, int n, rkv::tile_rows rows) {
        GGML_ASSERT(tile0 == round0 + n_made && "tiles are added in their order");
        while (n > 0) {
            const int some = std::min(n, room.n_tile - n_made);
            rkv_cuda_attn_tiles(tiles_of(tile0, rows), some, stream);
            n_made += some;
            tile0  += some;
            n      -= some;
            rows    = behind(rows, some);
            if (n_made == room.n_tile) {
                merge();
            }
        }
    }

    rkv::attn_tiles tiles_of(int tile0, const rkv::tile_rows & rows) const {
        rkv::attn_tiles t = {};
        t.q          = (const char *) a.q->data + of_stream*a.q->nb[3];
        t.q_nb_query = a.q->nb[1];
        t.q_nb_head  = a.q->nb[2];
        t.k          = rows.k;
        t.k_nb_cell  = rows.k_nb_cell;
        t.k_nb_head  = rows.k_nb_head;
        t.v          = rows.v;
        t.v_nb_cell  = rows.v_nb_cell;
        t.v_nb_head  = rows.v_nb_head;
        if (a.mask) {
            t.mask          = (const char *) a.mask->data + of_stream%a.mask->ne[3]*a.mask->nb[3];
            t.mask_nb_query = a.mask->nb[1];
            t.mask_nb_head  = a.mask->nb[2];
            t.mask_heads    = int(a.mask->ne[2]);
        }
        t.cell0    = a.tile_begin(tile0);
        t.n_kv     = a.n_kv;
        t.tile     = a.tile;
        t.d_k      = a.d_k;
        t.d_v      = a.d_v;
        t.n_q      = a.n_q;
        t.n_gqa    = a.n_gqa;
        t.n_head   = a.n_head;
        t.type_k   = rows.k_type;
        t.type_v   = rows.v_type;
        t.scale    = a.scale;
        t.softcap  = a.softcap;
        t.max_bias = a.max_bias;
        t.sums     = (float *) at(room.sums) + int64_t(n_made)*t.n_rows()*2;
        t.o        = (float *) at(room.o) + int64_t(n_made)*t.n_rows()*a.d_v;
        return t;
    }

    void merge() {
        rkv::merge_tiles m = {};
        m.sums         = (const float *) at(room.sums);
        m.o            = (const float *) at(room.o);
        m.state        = (float *) at(room.state);
        m.dst          = (float *) ((char *) a.dst->data + of_stream*a.dst->nb[3]);
        m.sinks        = a.sinks;
        m.dst_nb_head  = a.dst->nb[1];
        m.dst_nb_query = a.dst->nb[2];
        m.n_tile       = std::min(room.n_tile, a.n_tile - round0);
        m.n_made       = n_made;
        m.n_rows       = a.n_head*a.n_q;
        m.n_q          = a.n_q;
        m.d_v          = a.d_v;
        m.drop         = drop_tile >= round0 && drop_tile < round0 + m.n_tile ? drop_tile - round0 : -1;
        m.swap         = fault == RKV_FAULT_SWAP_MERGE && round0 == 0;
        m.first        = round0 == 0;
        m.last         = round0 + m.n_tile == a.n_tile;
        rkv_cuda_merge_tiles(m, stream);
        round0 += m.n_tile;
        n_made  = 0;
    }
};

// Rows of a part that the device reads where it lies, from its first cell on.
rkv::tile_rows rows_in_place(const attn_args & a, int part, int stream) {
    return a.rows(stream, part == 0 ? 0 : a.n_tile_win);
}

rkv::tile_rows rows_in_slot(const attn_args & a, const rkv::slot_layout & l, const char * slot, bool in_tail) {
    rkv::tile_rows r = {};
    r.k         = slot;
    r.v         = slot + l.v_offset;
    r.k_nb_cell = l.k_width;
    r.v_nb_cell = l.v_width;
    r.k_nb_head = a.part_k[in_tail]->nb[2];
    r.v_nb_head = a.part_v[in_tail]->nb[2];
    r.k_type    = a.part_k[in_tail]->type;
    r.v_type    = a.part_v[in_tail]->type;
    return r;
}

// The newest tile of the tail, as far as the cache is in use.
int last_tail_tile(const attn_args & a, rkv_cuda_ring * ring, const rkv_cuda_node * fed) {
    int res = -1;
    for (size_t i = fed ? fed->first : 0; fed && a.part_k[1] && i < fed->first + fed->n; ++i) {
        res = std::max(res, ring->layout(i).tile0 + ring->layout(i).n_tile - 1);
    }
    return res;
}

// A node's tiles, wherever they lie, in the order of (stream, tile). What is in use of a part in tail memory comes through the ring.
template <typename IN_PLACE, typename BROUGHT>
void walk(const attn_args & a, int device, rkv_cuda_ring * ring, const rkv_cuda_node * fed, int stream, size_t & next, IN_PLACE && in_place, BROUGHT && brought) {
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        if (!rkv_cuda_in_tail(device, a.part_k[part])) {
            in_place(part);
            continue;
        }
        for (; fed && next < fed->first + fed->n && int(ring->tile(next).stream) == stream; ++next) {
            brought(next, ring->acquire(next), part == 1);
            ring->release(next);
        }
    }
}

void attend(ggml_backend_cuda_context & ctx, const attn_args & a, rkv_cuda_ring * ring, const rkv_cuda_node * fed) {
    const int    drop = rkv_fault_get() == RKV_FAULT_DROP_TILE ? last_tail_tile(a, ring, fed) : -1;
    const char * zero = ring ? ring->zero_row() : nullptr;
    size_t       next = fed ? fed->first : 0;
    for (int s = 0; s < a.n_stream; ++s) {
        decode_pass pass(a, ctx.stream(), s, drop, zero);
        const auto in_place = [&](int part) {
            const int from = part == 0 ? 0 : a.n_tile_win;
            const int to   = part == 0 ? a.n_tile_win : a.n_tile;
            if (to > from) {
                pass.add(from, to - from, rows_in_place(a, part, s));
            }
        };
        const auto brought = [&](size_t i, const char * slot, bool in_tail) {
            const rkv::slot_layout & l = ring->layout(i);
            pass.add(l.tile0, l.n_tile, rows_in_slot(a, l, slot, in_tail));
        };
        walk(a, ctx.device, ring, fed, s, next, in_place, brought);
        pass.finish();
    }
}

//
// many queries
//

void copy_rows(char * dst, size_t width, const char * src, size_t stride, size_t rows, cudaStream_t stream) {
    if (rows == 0) {
        return;
    }
    if (stride == width) {
        CUDA_CHECK(cudaMemcpyAsync(dst, src, rows*width, cudaMemcpyDeviceToDevice, stream));
    } else {
        CUDA_CHECK(cudaMemcpy2DAsync(dst, width, src, stride, width, rows, cudaMemcpyDeviceToDevice, stream));
    }
}

// Rows of K and V of one stream, from `cell` of the cache on.
void put(const gathered & g, int of_stream, int64_t cell, const rkv::tile_rows & from, size_t rows, cudaStream_t stream) {
    char * k = (char *) g.k.data + of_stream*g.k.nb[3] + cell*g.k.nb[1];
    copy_rows(k, g.k.nb[1], from.k, from.k_nb_cell, rows, stream);
    if (!g.v_within_k) {
        char * v = (char *) g.v.data + of_stream*g.v.nb[3] + cell*g.v.nb[1];
        copy_rows(v, g.v.nb[1], from.v, from.v_nb_cell, rows, stream);
    }
}

// Cells that are not in use: nobody sees them, but upstream's kernels read them.
void put_zeroes(const gathered & g, int of_stream, int64_t cell, cudaStream_t stream) {
    const int64_t rows = g.k.ne[1] - cell;
    if (rows <= 0) {
        return;
    }
    CUDA_CHECK(cudaMemsetAsync((char *) g.k.data + of_stream*g.k.nb[3] + cell*g.k.nb[1], 0, rows*g.k.nb[1], stream));
    if (!g.v_within_k) {
        CUDA_CHECK(cudaMemsetAsync((char *) g.v.data + of_stream*g.v.nb[3] + cell*g.v.nb[1], 0, rows*g.v.nb[1], stream));
    }
}

void gather(ggml_backend_cuda_context & ctx, const attn_args & a, rkv_cuda_ring * ring, const rkv_cuda_node * fed, const gathered & g) {
    const rkv_fault fault  = rkv_fault_get();
    const int       drop   = fault == RKV_FAULT_DROP_TILE ? last_tail_tile(a, ring, fed) : -1;
    const cudaStream_t stream = ctx.stream();
    size_t          next   = fed ? fed->first : 0;
    for (int s = 0; s < a.n_stream; ++s) {
        int64_t live = 0;
        const auto in_place = [&](int part) {
            const int64_t from = part == 0 ? 0 : a.n_win;
            const int64_t to   = part == 0 ? a.n_win : a.n_kv;
            if (to > from) {
                put(g, s, from, rows_in_place(a, part, s), size_t(to - from), stream);
            }
            live = to;
        };
        const auto brought = [&](size_t i, const char * slot, bool in_tail) {
            const rkv::slot_layout & l    = ring->layout(i);
            const int64_t            cell = a.tile_begin(l.tile0);
            const size_t             rows = ring->tile(i).all.k.rows;
            put(g, s, cell, rows_in_slot(a, l, slot, in_tail), rows, stream);
            live = cell + int64_t(rows);
        };
        walk(a, ctx.device, ring, fed, s, next, in_place, brought);
        put_zeroes(g, s, live, stream);

        // Faults: a tile that was not written yet, and one that is left out as far as its values go.
        const int bad = fault == RKV_FAULT_STALE_TILE && a.part_k[1] ? a.n_tile_win : drop;
        if (bad >= 0) {
            const size_t k_bytes = a.tile_cells(bad)*g.k.nb[1];
            CUDA_CHECK(cudaMemsetAsync((char *) g.k.data + s*g.k.nb[3] + a.tile_begin(bad)*g.k.nb[1], 0, k_bytes, stream));
            if (!g.v_within_k) {
                const size_t v_bytes = a.tile_cells(bad)*g.v.nb[1];
                CUDA_CHECK(cudaMemsetAsync((char *) g.v.data + s*g.v.nb[3] + a.tile_begin(bad)*g.v.nb[1], 0, v_bytes, stream));
            }
        }
    }
}

void attend_many(ggml_backend_cuda_context & ctx, const attn_args & a, rkv_cuda_ring * ring, const rkv_cuda_node * fed) {
    const bool apart = is_apart(a);
    gathered   g(ctx.device, a, apart);
    if (apart) {
        g.k.data = (char *) a.dst->data + g.k_at;
        g.v.data = (char *) a.dst->data + g.v_at;
        gather(ctx, a, ring, fed, g);
    }
    ggml_cuda_flash_attn_ext(ctx, &g.node);
}

//
// what the device can
//

// Rows of these types are read in words of 16 bytes.
bool is_aligned(const ggml_tensor * t) {
    if (ggml_is_quantized(t->type)) {
        return true;
    }
    return t->nb[1]%16 == 0 && t->nb[2]%16 == 0 && t->nb[3]%16 == 0 && t->view_offs%16 == 0;
}

bool supports_tiled(int device, const ggml_tensor * node) {
    const attn_args a = rkv::attn_args_read(node);
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        const ggml_type k = a.part_k[part]->type, v = a.part_v[part]->type;
        if (!rkv::attn_has_type(k) || !rkv::attn_has_type(v) || k != a.part_k[0]->type || v != a.part_v[0]->type) {
            return false; // a gathered layer has one type
        }
    }
    if (a.n_q > rkv::TILES_QUERIES_MAX) {
        const gathered g(device, a, is_apart(a));
        return ggml_cuda_flash_attn_ext_supported(device, &g.node);
    }
    const bool channels = a.d_k%rkv::ATTN_VEC == 0 && a.d_v%rkv::ATTN_VEC == 0 && a.d_k <= rkv::ATTN_D_MAX && a.d_v <= rkv::ATTN_D_MAX;
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        if (!is_aligned(a.part_k[part]) || !is_aligned(a.part_v[part])) {
            return false;
        }
    }
    return channels;
}

bool supports_split(const ggml_tensor * node) {
    const ggml_tensor * rows = node->src[0];
    const ggml_tensor * idxs = node->src[1];
    const ggml_tensor * tail = node->src[RKV_SET_ROWS_SRC_TAIL];
    const bool f16  = rows->type == GGML_TYPE_F16 && node->type == GGML_TYPE_F16;
    const bool type = node->type == GGML_TYPE_IQ4_NL || rkv::attn_has_type(node->type);
    return tail->type == node->type && rows->ne[2] == 1 && rows->ne[3] == 1 && (f16 || (rows->type == GGML_TYPE_F32 && type)) &&
        (idxs->type == GGML_TYPE_I64 || idxs->type == GGML_TYPE_I32);
}

} // namespace

//
// hooks
//

bool rkv_cuda_begin(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph) {
    bool ours = false;
    for (int i = 0; i < graph->n_nodes && !ours; ++i) {
        ours = is_tiled(graph->nodes[i]) || in_any_tail(graph->nodes[i]);
    }
    // One that was made before must see a graph that has nothing of ours, too: the step before has ended.
    rkv_cuda_ring * ring = rkv_cuda_ring::of(ctx, ours);
    return !ring || ring->begin(graph);
}

void rkv_cuda_end(ggml_backend_cuda_context & ctx, const ggml_cgraph *) {
    if (rkv_cuda_ring * ring = rkv_cuda_ring::of(ctx, false)) {
        ring->end();
    }
}

bool rkv_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * node) {
    if (is_split(node)) {
        rkv_cuda_set_rows(ctx, node);
        return true;
    }
    if (!is_tiled(node)) {
        return false;
    }
    GGML_ASSERT(ctx.curr_stream_no == 0 && "attention follows everything that was computed beside it");
    rkv_cuda_ring *       ring = rkv_cuda_ring::of(ctx, false);
    const rkv_cuda_node * fed  = ring ? ring->begin_node(node) : nullptr;
    const attn_args       a    = rkv::attn_args_read(node);
    if (a.n_q <= rkv::TILES_QUERIES_MAX) {
        attend(ctx, a, ring, fed);
    } else {
        attend_many(ctx, a, ring, fed);
    }
    return true;
}

bool rkv_cuda_can_capture(const ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (is_tiled(node) && is_apart(rkv::attn_args_read(node))) {
            static std::atomic<bool> told{ false };
            if (!told.exchange(true)) {
                GGML_LOG_INFO("rolling-kv: attention reads a tail: steps are launched kernel by kernel, not as CUDA graphs\n");
            }
            return false;
        }
    }
    return true;
}

bool rkv_cuda_can_fuse(const ggml_tensor * set_rows) {
    return !is_split(set_rows);
}

size_t rkv_cuda_alloc_size(int device, const ggml_tensor * node) {
    if (!is_tiled(node)) {
        return 0;
    }
    const attn_args   a = rkv::attn_args_read(node);
    const decode_room room(a, std::min(a.n_q, rkv::TILES_QUERIES_MAX));
    // Of a long batch, with what a short one takes: only the longest is reserved.
    return a.n_q <= rkv::TILES_QUERIES_MAX ? room.bytes : std::max(room.bytes, gathered(device, a, is_apart(a)).bytes);
}

int rkv_cuda_supports_op(int device, const ggml_tensor * node) {
    if (is_split(node)) {
        return supports_split(node);
    }
    return is_tiled(node) ? supports_tiled(device, node) : -1;
}

void rkv_cuda_free(ggml_backend_cuda_context & ctx) {
    rkv_cuda_ring::free(ctx);
}

//
// the registry
//

static bool staging_set(ggml_backend_t backend, const rkv_staging_params * params, const rkv_staging_need * need) {
    return rkv_cuda_ring::of(*(ggml_backend_cuda_context *) backend->context, true)->prepare(*params, *need);
}

static void staging_totals(ggml_backend_t backend, rkv_staging_totals * totals) {
    const rkv_cuda_ring * ring = rkv_cuda_ring::of(*(ggml_backend_cuda_context *) backend->context, false);
    *totals = ring ? ring->totals() : rkv_staging_totals{};
}

static void link_totals(ggml_backend_dev_t dev, rkv_link_totals * totals) {
    *totals = {};
    for (int i = 0; i < ggml_backend_cuda_get_device_count(); ++i) {
        if (ggml_backend_reg_dev_get(ggml_backend_cuda_reg(), i) == dev) {
            totals->bytes_to_device  = rkv_cuda_counts_of(i).bytes_to_device;
            totals->copies_to_device = rkv_cuda_counts_of(i).copies_to_device;
        }
    }
}

void * rkv_cuda_proc(const char * name) {
    struct entry {
        const char * name;
        void *       fn;
    };
    static int tiled;
    const entry entries[] = {
        { RKV_TILED_PROC,          (void *) &tiled },
        { RKV_TAIL_BUFT_PROC,      (void *) rkv_cuda_tail_buffer_type },
        { RKV_STAGING_SET_PROC,    (void *) staging_set },
        { RKV_STAGING_TOTALS_PROC, (void *) staging_totals },
        { RKV_LINK_TOTALS_PROC,    (void *) link_totals },
    };
    for (const entry & e : entries) {
        if (strcmp(e.name, name) == 0) {
            return e.fn;
        }
    }
    return nullptr;
}
