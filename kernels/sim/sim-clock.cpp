#include "sim-clock.h"

#include "sim-graph.h"

#include "ggml-impl.h"

#include <algorithm>

namespace rkv_sim {

reckoned costs::of_node(const ggml_tensor * node, uint64_t fed) const {
    if (ggml_op_is_empty(node->op)) {
        return reckoned(0);
    }
    uint64_t bytes = ggml_nbytes(node);
    if (node->op == GGML_OP_GET_ROWS || node->op == GGML_OP_SET_ROWS) {
        bytes = 2*ggml_nbytes(node->op == GGML_OP_GET_ROWS ? node : node->src[0]);
    } else {
        for (const ggml_tensor * src : node->src) {
            bytes += src ? ggml_nbytes(src) : 0;
        }
    }
    return seconds(launch_s) + of_bytes(bytes - std::min(bytes, fed));
}

void device_clock::from(reckoned t) {
    reckoned::rep is = now.load(std::memory_order_acquire);
    while (is < t.count() && !now.compare_exchange_weak(is, t.count(), std::memory_order_acq_rel)) {
    }
}

} // namespace rkv_sim
