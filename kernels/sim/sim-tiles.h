#pragma once

// Which tiles of its tail a step reads, and how they are put together into copies.

#include "sim-clock.h"
#include "sim-graph.h"
#include "sim-host.h"

#include "rkv-attn-node.h"
#include "rkv-balance.h"
#include "rkv-ring.h"

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace rkv_sim {

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
    std::vector<int>  index;  // [n_stream, n_tile] into step_feeds::tiles; NOT_FED: read where it lies; host_tile(i): the host's
    std::unique_ptr<host_work> host; // what the host attends to, or NULL

    static constexpr int NOT_FED = -1;
    static constexpr int host_tile(int i) { return -2 - i; } // and back
};

// Where the rows of one copy lie in its slot.
struct slot_layout {
    int64_t cells;      // of a tile
    int     tile0;      // first tile
    int     n_tile;     // tiles that are in use
    size_t  k_width;    // bytes of a row
    size_t  v_width;
    size_t  v_offset;   // of V in its slot; or, where V is a part of K, in K's rows
    bool    v_within_k;
    size_t  bytes;
};

// One step. Lives until its graph has run. To the ring a tile is what one copy brings: one or several tiles of a node.
struct step_feeds {
    std::deque<node_feed>                nodes;
    std::vector<rkv::ring_tile>          tiles;
    std::vector<slot_layout>             layouts;  // [tiles]
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
