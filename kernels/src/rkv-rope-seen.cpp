#include "rkv-rope-seen.h"

#include <cstring>

namespace {

// Between the turning and the storing lie views, copies, the joining with channels that are not turned, and a spreading by a matrix that
// is an input. A product with weights is where K begins.
constexpr int DEPTH_MAX = 24;

const ggml_tensor * rope_before(const ggml_tensor * t, int depth) {
    if (!t || depth > DEPTH_MAX) {
        return nullptr;
    }
    switch (t->op) {
        case GGML_OP_ROPE:
            return t;
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
        case GGML_OP_CONT:
        case GGML_OP_CPY:
        case GGML_OP_SCALE:
        case GGML_OP_REPEAT:
            return rope_before(t->src[0], depth + 1);
        case GGML_OP_CONCAT: {
            const ggml_tensor * first = rope_before(t->src[0], depth + 1);
            return first ? first : rope_before(t->src[1], depth + 1);
        }
        case GGML_OP_MUL_MAT:
            return t->src[0]->flags & GGML_TENSOR_FLAG_INPUT ? rope_before(t->src[1], depth + 1) : nullptr;
        default:
            return nullptr;
    }
}

rkv_rope_seen * seen_of(const ggml_tensor * t) {
    const ggml_tensor * base = t->view_src ? t->view_src : t;
    if (base->op != GGML_OP_NONE) {
        return nullptr;
    }
    rkv_rope_seen * seen;
    memcpy(&seen, base->op_params + RKV_LEAF_PARAM_ROPE, sizeof(seen));
    return seen;
}

void note(const ggml_tensor * rope, rkv_rope_seen & seen) {
    const int32_t * p = rope->op_params;
    const auto real = [&](int i) {
        float value;
        memcpy(&value, p + i, sizeof(value));
        return value;
    };
    seen.n_dims      = p[1];
    seen.mode        = p[2];
    seen.n_ctx_orig  = p[4];
    seen.freq_base   = real(5);
    seen.freq_scale  = real(6);
    seen.ext_factor  = real(7);
    seen.attn_factor = real(8);
    seen.beta_fast   = real(9);
    seen.beta_slow   = real(10);
    seen.factors     = rope->src[2];
    seen.known       = true;
}

} // namespace

void rkv_rope_look(ggml_cgraph * gf) {
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);
        if (node->op != GGML_OP_SET_ROWS) {
            continue;
        }
        rkv_rope_seen * seen = seen_of(node);
        if (!seen || seen->known) {
            continue;
        }
        if (const ggml_tensor * rope = rope_before(node->src[0], 0)) {
            note(rope, *seen);
        }
    }
}
