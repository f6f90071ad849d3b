#pragma once

// A device's own copy of a graph, with the addresses that it computes with.

#include "sim-device.h"

#include "ggml.h"

#include <deque>
#include <unordered_map>
#include <vector>

namespace rkv_sim {

// Whether its tiles are brought while it runs.
bool has_feed(const ggml_tensor * node);

class graph_copy {
public:
    graph_copy(const device & d, ggml_cgraph * source);
    ~graph_copy();

    graph_copy(const graph_copy &) = delete;
    graph_copy & operator=(const graph_copy &) = delete;

    ggml_cgraph * graph() { return copy; }

    // Whether it changes a tail by anything but new rows, which the cache announces: a shift of positions does.
    bool rewrites_tail() const { return rewrites; }

    // Bytes of K in the tail that the device reads over its link to turn them, and writes back.
    uint64_t turned_in_tail() const { return turned; }

    // Pairs of a source's node and its copy, for nodes that are attention in tiles.
    struct node_pair {
        const ggml_tensor * source;
        ggml_tensor *       copy;
    };
    const std::vector<node_pair> & tiled() const { return tiled_nodes; }

private:
    const device &                                        d;
    ggml_context *                                        ctx;
    ggml_cgraph *                                         copy;
    std::deque<ggml_tensor>                               tensors;
    std::unordered_map<const ggml_tensor *, ggml_tensor *> copies;
    std::vector<node_pair>                                tiled_nodes;
    bool                                                  rewrites = false;
    uint64_t                                              turned   = 0;

    ggml_tensor * copy_of(const ggml_tensor * t);
};

} // namespace rkv_sim
