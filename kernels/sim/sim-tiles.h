#pragma once

// The feeds of a step's nodes.

#include "sim-clock.h"
#include "sim-graph.h"

#include "rkv-attn-node.h"
#include "rkv-collect.h"

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace rkv_sim {

using rkv::slot_layout;

class staging;
struct step_feeds;

// One attention node's tiles during one step.
struct node_feed {
    rkv_tile_feed     feed;   // what the node sees
    staging *         owner;
    step_feeds *      step;
    uint64_t          number; // of the node, counted since the ring was made
    ggml_tensor *     node;   // of the device's own graph
    reckoned          base;   // what the node takes besides its tiles
    int               n_tile;
    std::vector<int>  index;  // [n_stream, n_tile] into the step's tiles; -1: read where it lies
};

// One step. Lives until its graph has run.
struct step_feeds : rkv::collected {
    std::deque<node_feed>                nodes;
    std::vector<rkv::ring_use>           uses;     // [tiles]
    std::unique_ptr<std::atomic<int>[]>  released; // [tiles] times that a thread gave one of its tiles back
    uint64_t                             discarded = 0;
};

// Adds the node, if some of its tiles lie in the device's tail memory. A copy has up to `copy_cells` cells, at least a tile.
void collect_node(const device & d, const graph_copy::node_pair & pair, uint32_t copy_cells, step_feeds & step);

} // namespace rkv_sim
