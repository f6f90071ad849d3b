#include "sim-tiles.h"

#include <cstring>

namespace rkv_sim {

// Bytes of the node's sources that its feed brings.
static uint64_t fed_bytes(const device & d, const ggml_tensor * node) {
    uint64_t bytes = 0;
    for (const int s : { 1, 2, int(RKV_ATTN_SRC_K_TAIL), int(RKV_ATTN_SRC_V_TAIL) }) {
        bytes += node->src[s] && in_tail_memory(d, node->src[s]) ? ggml_nbytes(node->src[s]) : 0;
    }
    return bytes;
}

bool host_may(const ggml_tensor * node) {
    return node->src[0]->ne[1] <= RKV_ATTN_QUERIES_FEW;
}

void count_node(const device & d, const ggml_tensor * node, std::vector<rkv::balance_item> & items) {
    if (in_tail_memory(d, rkv::tail_of(node).k)) {
        rkv::collect_items(node, items);
    }
}

void collect_node(const device & d, const graph_copy::node_pair & pair, uint32_t copy_cells, const uint32_t * ring, step_feeds & step,
        std::vector<rkv_host_tile> & host) {
    const ggml_tensor *  node = pair.source;
    const rkv::tail_part part = rkv::tail_of(node);
    if (!in_tail_memory(d, part.k)) {
        return;
    }
    const int64_t tile = node->op_params[RKV_OP_PARAM_TILE];

    step.nodes.emplace_back();
    node_feed & n = step.nodes.back();
    n.step   = &step;
    n.node   = pair.copy;
    n.n_tile = int((part.end + tile - 1)/tile);
    n.base   = d.cost.of_node(node, fed_bytes(d, node));
    if (!rkv::collect_tiles(node, uint32_t(step.nodes.size() - 1), copy_cells, step, n.index, ring, &host)) {
        step.nodes.pop_back();
    }
}

} // namespace rkv_sim
