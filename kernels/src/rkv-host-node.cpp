#include "rkv-host-node.h"

#include <algorithm>

namespace rkv {

ggml_tensor dense_like(const ggml_tensor * t, void * data) {
    ggml_tensor res = *t;
    res.nb[1] = ggml_row_size(t->type, t->ne[0]);
    res.nb[2] = res.nb[1]*t->ne[1];
    res.nb[3] = res.nb[2]*t->ne[2];
    res.data  = data;
    return res;
}

size_t dense_bytes(const ggml_tensor * t) {
    return ggml_row_size(t->type, t->ne[0])*t->ne[1]*t->ne[2]*t->ne[3];
}

std::vector<dense_run> dense_runs(const ggml_tensor * t) {
    const ggml_tensor      d = dense_like(t, nullptr);
    std::vector<dense_run> res;
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            res.push_back({ i2*t->nb[2] + i3*t->nb[3], i2*d.nb[2] + i3*d.nb[3], d.nb[1], t->nb[1], size_t(t->ne[1]) });
        }
    }
    return res;
}

std::vector<uint64_t> host_tile_bytes(const ggml_tensor * node, const std::vector<rkv_host_tile> & tiles) {
    const ggml_tensor * k_tail = node->src[RKV_ATTN_SRC_K_TAIL];
    const ggml_tensor * k      = k_tail ? k_tail : node->src[1];
    const ggml_tensor * v      = k_tail ? node->src[RKV_ATTN_SRC_V_TAIL] : node->src[2];
    const bool          within = v->view_src && v->view_src == k->view_src;
    const uint64_t      cell   = k->ne[2]*(ggml_row_size(k->type, k->ne[0]) + (within ? 0 : ggml_row_size(v->type, v->ne[0])));
    const int64_t       n_kv   = node->src[1]->ne[1] + (k_tail ? k_tail->ne[1] : 0);
    const int64_t       size   = node->op_params[RKV_OP_PARAM_TILE];

    std::vector<uint64_t> res;
    for (const rkv_host_tile & t : tiles) {
        res.push_back(cell*uint64_t(std::min(size, n_kv - t.tile*size)));
    }
    return res;
}

uint64_t host_partial_bytes(const ggml_tensor * node) {
    return uint64_t(node->src[0]->ne[1]*node->src[0]->ne[2])*(node->ne[0] + 2)*sizeof(float);
}

} // namespace rkv
