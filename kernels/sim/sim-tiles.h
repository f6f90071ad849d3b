#pragma once

// The feeds of a step's nodes.

#include "sim-clock.h"
#include "sim-graph.h"
#include "sim-host.h"
#include "sim-turns.h"

#include "rkv-attn-node.h"
#include "rkv-balance.h"
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
    std::vector<int>  index;  // [n_stream, n_tile] into the step's tiles; rkv::NOT_BROUGHT: read where it lies; rkv::host_tile(i): the host's
    std::unique_ptr<host_work> host;  // what the host attends to, or NULL
    std::unique_ptr<turns>     order; // of the threads, where time is reckoned, or NULL
};

// One step. Lives until its graph has run.
struct step_feeds : rkv::collected {
    std::deque<node_feed>                nodes;
    std::vector<rkv::ring_use>           uses;     // [tiles]
    std::unique_ptr<std::atomic<int>[]>  released; // [tiles] times that a thread gave one of its tiles back
    std::unique_ptr<std::atomic<bool>[]> waited;   // [tiles] a thread of its node had to wait for it
    uint64_t                             discarded = 0;
    host_masks                           masks;
    bool                                 few_queries = false; // the host may take part
    uint64_t                             link_bytes  = 0;     // of its copies
};

// Whether the host may attend to tiles of the node: it has few queries.
bool host_may(const ggml_tensor * node);

// The node's tails as far as they are in use, one a stream; none where it has no tiles in the device's tail memory.
void count_node(const device & d, const ggml_tensor * node, std::vector<rkv::balance_item> & items);

// Adds the node, if some of its tiles lie in the device's tail memory. A copy has up to `copy_cells` cells, at least a tile. Of each
// stream's tail the first ring[stream] tiles are copied; the others are added to `host`.
void collect_node(const device & d, const graph_copy::node_pair & pair, uint32_t copy_cells, const uint32_t * ring, step_feeds & step,
        std::vector<rkv_host_tile> & host);

} // namespace rkv_sim
