#include "rkv-probe.h"

#include "rkv-attn-node.h"
#include "rkv-params.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace rkv {

namespace {

// A graph that was built by `build`, which also says how much one run of it is.
class graph_trial : public trial {
public:
    using builder = std::function<double(ggml_context * ctx, ggml_cgraph * gf)>;

    graph_trial(const timed_backend & on, size_t n_tensor, const builder & build) : on(on) {
        ggml_init_params params = {};
        params.mem_size = n_tensor*ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensor, false);
        params.no_alloc = true;
        ctx.reset(ggml_init(params));
        gf     = ggml_new_graph_custom(ctx.get(), n_tensor, false);
        amount = build(ctx.get(), gf);
        buffer.reset(ggml_backend_alloc_ctx_tensors(ctx.get(), on.get()));
        if (!buffer) {
            throw std::runtime_error("there is no memory for the graph that is to be measured");
        }
        ggml_backend_buffer_clear(buffer.get(), 0);
    }

    void run() override {
        if (ggml_backend_graph_compute_async(on.get(), gf) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("a graph that is to be measured could not be computed");
        }
    }

private:
    const timed_backend &   on;
    ggml_context_ptr        ctx;
    ggml_cgraph *           gf = nullptr;
    ggml_backend_buffer_ptr buffer;
};

constexpr int64_t SMALL   = 32;   // values that a node which hardly computes has
constexpr int64_t WIDTH   = 2048; // of matrices
constexpr int64_t BATCH   = 512;  // columns of a prompt's product
constexpr int64_t HEAD    = 128;
constexpr int64_t N_HEAD  = 32;
constexpr int64_t N_KV    = 8;

// Cells of one node: a longer run is several nodes, as layers are.
constexpr int64_t CELLS = 4096;

ggml_tensor * heads_of(ggml_context * ctx, ggml_tensor * rows, int64_t cells) {
    const size_t head = ggml_row_size(rows->type, HEAD);
    return ggml_permute(ctx, ggml_view_3d(ctx, rows, HEAD, N_KV, cells, head, head*N_KV, 0), 0, 2, 1, 3);
}

double build_attention(ggml_context * ctx, ggml_cgraph * gf, int64_t cells, ggml_type type) {
    double bytes = 0;
    for (int64_t from = 0; from < cells; from += CELLS) {
        const int64_t n = std::min(CELLS, cells - from);
        ggml_tensor * q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEAD, 1, N_HEAD);
        ggml_tensor * k = ggml_new_tensor_2d(ctx, type, HEAD*N_KV, n);
        ggml_tensor * v = ggml_new_tensor_2d(ctx, type, HEAD*N_KV, n);
        ggml_tensor * o = ggml_flash_attn_ext(ctx, q, heads_of(ctx, k, n), heads_of(ctx, v, n), nullptr, 1.0f/std::sqrt(float(HEAD)), 0.0f, 0.0f);
        o->op_params[RKV_OP_PARAM_TILE] = RKV_TILE_DEFAULT;
        ggml_build_forward_expand(gf, o);
        bytes += double(ggml_nbytes(k) + ggml_nbytes(v));
    }
    return bytes;
}

} // namespace

std::unique_ptr<trial> make_nodes(const timed_backend & on, uint64_t n_node) {
    return std::make_unique<graph_trial>(on, n_node + 2, [&](ggml_context * ctx, ggml_cgraph * gf) {
        ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, SMALL);
        for (uint64_t i = 0; i < n_node; ++i) {
            x = ggml_scale(ctx, x, 1.0f);
        }
        ggml_build_forward_expand(gf, x);
        return double(n_node);
    });
}

std::unique_ptr<trial> make_read(const timed_backend & on, uint64_t bytes) {
    return std::make_unique<graph_trial>(on, 8, [&](ggml_context * ctx, ggml_cgraph * gf) {
        const int64_t rows = std::max<int64_t>(1, int64_t(bytes)/(WIDTH*2));
        ggml_tensor * w = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, WIDTH, rows);
        ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, WIDTH);
        ggml_build_forward_expand(gf, ggml_mul_mat(ctx, w, x));
        return double(ggml_nbytes(w));
    });
}

std::unique_ptr<trial> make_matrix(const timed_backend & on, uint64_t n_product) {
    return std::make_unique<graph_trial>(on, 4*n_product + 4, [&](ggml_context * ctx, ggml_cgraph * gf) {
        ggml_tensor * w = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, WIDTH, WIDTH);
        ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, BATCH);
        for (uint64_t i = 0; i < n_product; ++i) {
            x = ggml_mul_mat(ctx, w, x);
        }
        ggml_build_forward_expand(gf, x);
        return 2.0*WIDTH*WIDTH*BATCH*double(n_product);
    });
}

std::unique_ptr<trial> make_attention(const timed_backend & on, uint64_t cells, ggml_type type) {
    const size_t n_node = size_t(cells + CELLS - 1)/CELLS;
    return std::make_unique<graph_trial>(on, 16*n_node, [&](ggml_context * ctx, ggml_cgraph * gf) {
        return build_attention(ctx, gf, int64_t(cells), type);
    });
}

} // namespace rkv
