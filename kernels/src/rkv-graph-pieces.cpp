#include "rkv-graph-pieces.h"

#include "ggml-impl.h"

namespace rkv {

static bool computes(const ggml_tensor * node) {
    return !ggml_op_is_empty(node->op) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !ggml_is_empty(node);
}

std::vector<graph_piece> graph_pieces(const ggml_cgraph * graph, reads_tail_fn reads_tail) {
    std::vector<graph_piece> pieces;
    bool any = false; // of the last piece's nodes computes
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        const bool computing = computes(node);
        const bool tail      = computing && reads_tail(node);
        if (pieces.empty() || (any && computing && pieces.back().reads_tail != tail)) {
            pieces.push_back({ i, i, tail });
            any = false;
        }
        graph_piece & last = pieces.back();
        last.reads_tail = any ? last.reads_tail : tail;
        last.end        = i + 1;
        any             = any || computing;
    }
    return pieces;
}

} // namespace rkv
