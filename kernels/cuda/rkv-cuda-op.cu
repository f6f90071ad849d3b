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
// captured graph, unless its copies are captured with fixed slots and sizes; and then nothing could run ahead into the next step. So it
// is given in pieces (rkv-cuda-pieces.cu): what lies between two nodes that read a tail is captured, these nodes are not. A graph in
// which no tail is read is captured as ever. Our kernels read nothing that changes from step to step but through the tensors' own
// addresses.

#include "rkv-cuda.h"

#include "rkv-cuda-buffer.h"
#include "rkv-cuda-kernels.cuh"
#include "rkv-cuda-node.h"
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
#include <cstring>

using rkv::attn_args;

namespace {

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

// Whether the cells do not lie as upstream's kernels read them.
bool is_apart(const attn_args & a) {
    return a.part_k[1] || in_any_tail(a.part_k[0]);
}

// Gives what a node does to the context's stream.
class cuda_node_queue : public rkv::node_queue {
public:
    explicit cuda_node_queue(cudaStream_t stream) : stream(stream) {}

    void tiles(const rkv::attn_tiles & a, int n_tiles) override { rkv_cuda_attn_tiles(a, n_tiles, stream); }
    void merge(const rkv::merge_tiles & a) override { rkv_cuda_merge_tiles(a, stream); }

    void copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) override {
        if (stride == width) {
            CUDA_CHECK(cudaMemcpyAsync(dst, src, rows*width, cudaMemcpyDeviceToDevice, stream));
        } else {
            CUDA_CHECK(cudaMemcpy2DAsync(dst, width, src, stride, width, rows, cudaMemcpyDeviceToDevice, stream));
        }
    }

    void zero(char * dst, size_t bytes) override { CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, stream)); }
    void convert(const rkv::convert_rows & a) override { rkv_cuda_convert_rows(a, stream); }

private:
    cudaStream_t stream;
};

// What the ring brings of one node.
class cuda_brought_tiles : public rkv::brought_tiles {
public:
    cuda_brought_tiles(rkv_cuda_ring & ring, const rkv_cuda_node & node) : ring(ring), node(node) {}

    size_t                   count() const override { return node.n; }
    const rkv::ring_tile &   tile(size_t i) const override { return ring.tile(node.first + i); }
    const rkv::slot_layout & layout(size_t i) const override { return ring.layout(node.first + i); }
    const char *             acquire(size_t i) override { return ring.acquire(node.first + i); }
    void                     release(size_t i) override { ring.release(node.first + i); }

private:
    rkv_cuda_ring &       ring;
    const rkv_cuda_node & node;
};

// What the host attends to of one node.
class cuda_host_share : public rkv::host_share {
public:
    cuda_host_share(rkv_cuda_host & host, rkv_cuda_host_node & node) : host(host), node(node) {}

    size_t        count() const override { return node.tiles.size(); }
    rkv_host_tile tile(size_t i) const override { return node.tiles[i]; }
    void          start() override { host.start(node); }
    void          partials(size_t first, size_t n, float * sums, float * o) override { host.partials(node, first, n, sums, o); }

private:
    rkv_cuda_host &      host;
    rkv_cuda_host_node & node;
};

// With the bytes that everything of it takes.
void place(rkv::gathered & g, int device) {
    g.place(ggml_cuda_flash_attn_ext_get_alloc_size(device, &g.node));
}

void compute(ggml_backend_cuda_context & ctx, const attn_args & a, rkv_cuda_ring * ring, rkv::brought_tiles * brought, rkv::host_share * host) {
    rkv::placed_node node = { a };
    for (int part = 0; part < 2; ++part) {
        node.in_tail[part] = a.part_k[part] && rkv_cuda_in_tail(ctx.device, a.part_k[part]);
    }
    node.brought  = brought;
    node.host     = host;
    node.fault    = rkv_fault_get();
    node.zero_row = ring ? ring->zero_row() : nullptr;

    cuda_node_queue queue(ctx.stream());
    if (a.n_q <= rkv::TILES_QUERIES_MAX) {
        rkv::attend(node, queue);
        return;
    }
    rkv::gathered g(a, is_apart(a));
    place(g, ctx.device);
    if (g.packed) {
        rkv::gather(node, g, queue);
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

bool are_aligned(const attn_args & a) {
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        if (!is_aligned(a.part_k[part]) || !is_aligned(a.part_v[part])) {
            return false;
        }
    }
    return true;
}

bool supports_tiled(int device, const ggml_tensor * node) {
    const attn_args a = rkv::attn_args_read(node);
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        const ggml_type k = a.part_k[part]->type, v = a.part_v[part]->type;
        if (!rkv::attn_has_type(k) || !rkv::attn_has_type(v)) {
            return false;
        }
    }
    const bool mixed = a.part_k[1] && (a.part_k[1]->type != a.part_k[0]->type || a.part_v[1]->type != a.part_v[0]->type);
    if (mixed && !rkv::can_gather(a)) {
        return false; // a long batch would not be computed
    }
    if (a.n_q > rkv::TILES_QUERIES_MAX) {
        const rkv::gathered g(a, is_apart(a));
        return (!mixed || are_aligned(a)) && ggml_cuda_flash_attn_ext_supported(device, &g.node);
    }
    const bool channels = a.d_k%rkv::ATTN_VEC == 0 && a.d_v%rkv::ATTN_VEC == 0 && a.d_k <= rkv::ATTN_D_MAX && a.d_v <= rkv::ATTN_D_MAX;
    return channels && are_aligned(a);
}

bool supports_split(const ggml_tensor * node) {
    const ggml_tensor * rows = node->src[0];
    const ggml_tensor * idxs = node->src[1];
    const ggml_tensor * tail = node->src[RKV_SET_ROWS_SRC_TAIL];
    const auto makes = [rows](ggml_type type) {
        const bool known = type == GGML_TYPE_IQ4_NL || rkv::attn_has_type(type);
        return rows->type == GGML_TYPE_F16 ? type == GGML_TYPE_F16 : rows->type == GGML_TYPE_F32 && known;
    };
    return makes(node->type) && makes(tail->type) && rows->ne[2] == 1 && rows->ne[3] == 1 && (idxs->type == GGML_TYPE_I64 || idxs->type == GGML_TYPE_I32);
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
    return !ring || ring->in_pieces || ring->begin(graph);
}

void rkv_cuda_end(ggml_backend_cuda_context & ctx, const ggml_cgraph *) {
    rkv_cuda_ring * ring = rkv_cuda_ring::of(ctx, false);
    if (ring && !ring->in_pieces) {
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
    const attn_args a = rkv::attn_args_read(node);
    rkv_cuda_ring * ring = rkv_cuda_ring::of(ctx, false);
    if (const rkv_cuda_node * fed = ring ? ring->begin_node(node) : nullptr) {
        cuda_brought_tiles brought(*ring, *fed);
        if (fed->host) {
            cuda_host_share host(ring->host(), *fed->host);
            compute(ctx, a, ring, &brought, &host);
        } else {
            compute(ctx, a, ring, &brought, nullptr);
        }
    } else {
        compute(ctx, a, ring, nullptr, nullptr);
    }
    return true;
}

bool rkv_cuda_reads_tail(const ggml_tensor * node) {
    return is_tiled(node) && is_apart(rkv::attn_args_read(node));
}

bool rkv_cuda_can_capture(const ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (rkv_cuda_reads_tail(graph->nodes[i])) {
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
    const attn_args        a = rkv::attn_args_read(node);
    const rkv::decode_room room(a, std::min(a.n_q, rkv::TILES_QUERIES_MAX));
    if (a.n_q <= rkv::TILES_QUERIES_MAX) {
        return room.bytes;
    }
    // With what a shorter batch takes: only the longest is reserved.
    rkv::gathered g(a, is_apart(a));
    place(g, device);
    return std::max(room.bytes, g.bytes);
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
    static int mark;
    const entry entries[] = {
        { RKV_TILED_PROC,          (void *) &mark },
        { RKV_GATHER_PROC,         (void *) &mark },
        { RKV_TAIL_BUFT_PROC,      (void *) rkv_cuda_tail_buffer_type },
        { RKV_TAIL_TYPES_PROC,     (void *) &mark },
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
