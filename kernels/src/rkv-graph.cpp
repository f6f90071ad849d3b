#include "rkv-graph.h"

#include "rkv-attn-node.h"
#include "rkv-kv-split.h"

#include "llama-impl.h"

#include <cstring>
#include <stdexcept>
#include <unordered_set>

namespace {

// The tail that belongs to a node's source `src` (K or V): found through the chain of views it was made from. A view of a part
// of each row (V of an MLA cache is the first columns of K) is taken of the tail too.
ggml_tensor * tail_of(ggml_context * ctx, ggml_tensor * src) {
    if (src->op == GGML_OP_PERMUTE) {
        ggml_tensor * tail = tail_of(ctx, src->src[0]);
        if (!tail) {
            return nullptr;
        }
        const int32_t * axes = src->op_params;
        return ggml_permute(ctx, tail, axes[0], axes[1], axes[2], axes[3]);
    }
    if (src->op != GGML_OP_VIEW) {
        return nullptr;
    }
    if (ggml_tensor * tail = rkv_view_tail(src)) {
        return tail;
    }

    const ggml_tensor * base = src->src[0];
    ggml_tensor * tail = base->op == GGML_OP_VIEW ? rkv_view_tail(base) : nullptr;
    if (!tail) {
        return nullptr;
    }
    GGML_ASSERT(src->ne[1] == base->ne[1] && src->ne[2] == base->ne[2] && src->ne[3] == base->ne[3]);
    const int64_t first = int64_t((src->view_offs - base->view_offs)/ggml_type_size(src->type))*ggml_blck_size(src->type); // column
    return ggml_view_4d(ctx, tail, src->ne[0], tail->ne[1], tail->ne[2], tail->ne[3], tail->nb[1], tail->nb[2], tail->nb[3],
            ggml_row_size(tail->type, first));
}

// With a window of 0 stock's own tensor is the tail.
bool is_tail(const rkv_layer_counters * counters) {
    return counters && counters->all_in_tail;
}

// The device whose memory holds a cache's part, or NULL while it has none.
ggml_backend_dev_t device_of(const ggml_tensor * part) {
    while (part->view_src) {
        part = part->view_src;
    }
    return part->buffer ? ggml_backend_buft_get_device(ggml_backend_buffer_get_type(part->buffer)) : nullptr;
}

// A node that its device cannot compute would go to the CPU, with all its cells.
void check_device(const ggml_tensor * node) {
    const ggml_tensor * tail = node->src[RKV_ATTN_SRC_K_TAIL];
    ggml_backend_dev_t  dev  = device_of(tail ? tail : node->src[1]);
    if (dev && !ggml_backend_dev_supports_op(dev, node)) {
        throw std::runtime_error(format("rolling-kv: device %s has no tiled attention over %s and %s with heads of %d and %d channels (layer %d); give other cache types, "
                    "or drop the window", ggml_backend_dev_name(dev), ggml_type_name(node->src[1]->type), ggml_type_name(node->src[2]->type),
                    int(node->src[1]->ne[0]), int(node->src[2]->ne[0]), int(node->op_params[RKV_OP_PARAM_LAYER])));
    }
}

} // namespace

void rkv_attn_node_init(ggml_context * ctx, ggml_tensor * node, const rkv_attn_config & config, int il) {
    if (config.tile == 0) {
        return;
    }

    ggml_tensor * k_tail = tail_of(ctx, node->src[1]);
    ggml_tensor * v_tail = tail_of(ctx, node->src[2]);
    GGML_ASSERT((k_tail == nullptr) == (v_tail == nullptr));
    const rkv_layer_counters * counters = rkv_counters_of(node->src[1]);
    if (!config.tiled && !k_tail && !is_tail(counters)) {
        return;
    }

    node->src[RKV_ATTN_SRC_K_TAIL] = k_tail;
    node->src[RKV_ATTN_SRC_V_TAIL] = v_tail;

    node->op_params[RKV_OP_PARAM_TILE]  = config.tile;
    node->op_params[RKV_OP_PARAM_LAYER] = il;

    memcpy(&node->op_params[RKV_OP_PARAM_COUNTERS], &counters, sizeof(counters));

    const rkv_step * step = rkv_step_of(node->src[1]);
    memcpy(&node->op_params[RKV_OP_PARAM_STEP], &step, sizeof(step));
}

void rkv_attn_check(const ggml_tensor * k, bool use_flash_attn, int il) {
    if (!use_flash_attn && (rkv_view_tail(k) || is_tail(rkv_counters_of(k)))) {
        throw std::runtime_error(format("rolling-kv: attention of layer %d cannot run in tiles (it adds a bias to the scores, or flash attention is off); drop the window", il));
    }
}

void rkv_flash_attn_check(const rkv_attn_config & config, bool flash_attn) {
    if (config.tile != 0 && !flash_attn) {
        throw std::runtime_error("rolling-kv: a window needs flash attention, which the device does not support for this model; drop the window");
    }
}

void rkv_graph_check(ggml_cgraph * gf, const rkv_attn_config & config) {
    if (config.tile == 0) {
        return;
    }
    rkv_rope_look(gf);

    std::unordered_set<const ggml_tensor *> ours; // views that lead from a split cache to its attention
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);
        if (node->op == GGML_OP_FLASH_ATTN_EXT && node->op_params[RKV_OP_PARAM_TILE] != 0) {
            check_device(node);
        }
        if (node->op == GGML_OP_FLASH_ATTN_EXT && (node->src[RKV_ATTN_SRC_K_TAIL] || rkv_local_view(node->src[1]))) {
            for (int s = 1; s <= 2; ++s) {
                for (const ggml_tensor * t = node->src[s]; t->op == GGML_OP_PERMUTE || t->op == GGML_OP_VIEW; t = t->src[0]) {
                    ours.insert(t);
                }
            }
        }
    }

    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);
        if (node->op == GGML_OP_FLASH_ATTN_EXT || ours.count(node)) {
            continue;
        }
        for (int s = 0; s < GGML_MAX_SRC; ++s) {
            const ggml_tensor * src = node->src[s];
            if (src && src->op == GGML_OP_VIEW && (rkv_view_tail(src) || rkv_local_view(src))) {
                throw std::runtime_error(format("rolling-kv: node '%s' (%s) reads a cache outside of attention; the architecture is not supported with a window",
                            node->name, ggml_op_name(node->op)));
            }
        }
    }
}
