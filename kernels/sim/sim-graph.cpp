#include "sim-graph.h"

#include "ggml-impl.h"
#include "rkv-attn-node.h"

#include <cstring>
#include <new>

namespace rkv_sim {

ggml_tensor * graph_copy::copy_of(const ggml_tensor * t) {
    if (!t) {
        return nullptr;
    }
    const auto it = copies.find(t);
    if (it != copies.end()) {
        return it->second;
    }
    tensors.push_back(*t);
    ggml_tensor * c = &tensors.back();
    copies.emplace(t, c);
    c->data = bytes_of(d, t);
    return c;
}

bool has_feed(const ggml_tensor * node) {
    const rkv_tile_feed * feed = nullptr;
    if (node->op == GGML_OP_FLASH_ATTN_EXT && node->op_params[RKV_OP_PARAM_TILE] != 0) {
        memcpy(&feed, node->op_params + RKV_OP_PARAM_FEED, sizeof(feed));
    }
    return feed;
}

// Bytes of the tail that the device itself reads over its link and writes back: a shift of positions turns K there.
static uint64_t turned_bytes(const device & d, const ggml_tensor * node) {
    if (node->op == GGML_OP_ROPE && in_tail_memory(d, node)) {
        return ggml_nbytes(node);
    }
    if (node->op == GGML_OP_GET_ROWS && in_tail_memory(d, node->src[0])) {
        return ggml_row_size(node->src[0]->type, node->src[0]->ne[0])*uint64_t(node->ne[1]);
    }
    return 0;
}

graph_copy::graph_copy(const device & d, ggml_cgraph * source) : d(d) {
    const int n = source->n_nodes;
    ctx = ggml_init({ ggml_graph_overhead_custom(2*size_t(n) + 64, false), nullptr, true });
    if (!ctx) {
        throw std::bad_alloc();
    }
    copy = ggml_new_graph_custom(ctx, 2*size_t(n) + 64, false);
    copies.reserve(size_t(n)*2);

    for (int i = 0; i < n; ++i) {
        const ggml_tensor * t = source->nodes[i];
        ggml_tensor *       c = copy_of(t);
        for (int s = 0; s < GGML_MAX_SRC; ++s) {
            c->src[s] = copy_of(t->src[s]);
        }
        copy->nodes[copy->n_nodes++] = c;
        rewrites = rewrites || (t->op != GGML_OP_SET_ROWS && !ggml_op_is_empty(t->op) && in_tail_memory(d, t));

        turned  += turned_bytes(d, t);

        const size_t at = ggml_hash_find_or_insert(&copy->visited_hash_set, c);
        if (at < copy->visited_hash_set.size) {
            copy->use_counts[at] = ggml_node_get_use_count(source, i);
        }
        if (t->op == GGML_OP_FLASH_ATTN_EXT && t->op_params[RKV_OP_PARAM_TILE] != 0) {
            tiled_nodes.push_back({ t, c });
        }
    }
}

graph_copy::~graph_copy() {
    ggml_free(ctx);
}

} // namespace rkv_sim
