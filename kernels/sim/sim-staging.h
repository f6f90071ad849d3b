#pragma once

// Brings a step's tiles from pinned host memory to the device, as rkv-ring.h says, and hands them to the attention nodes.

#include "sim-device.h"
#include "sim-graph.h"
#include "sim-queue.h"

#include "rkv-attn-node.h"
#include "rkv-ring.h"
#include "rkv-step.h"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace rkv_sim {

class staging;

// One attention node's tiles during one step.
struct node_feed {
    rkv_tile_feed     feed;  // what the node sees
    staging *         owner;
    uint64_t          number; // of the node, counted since the ring was made
    ggml_tensor *     node;   // of the device's own graph
    int               n_tile;
    std::vector<int>  index;  // [n_stream, n_tile] into step_feeds::uses; -1: read where it lies
    struct step_feeds * step;
};

// One step. Lives until its graph has run.
struct step_feeds {
    std::vector<rkv::ring_tile>          tiles;
    struct layout {
        size_t k_width; // bytes of a row
        size_t v_width;
        size_t v_offset; // of V in its slot; or, where V is a part of K, in K's rows
        size_t bytes;
    };
    std::vector<layout>                  layouts;  // [tiles]
    std::vector<rkv::ring_use>           uses;
    std::unique_ptr<std::atomic<int>[]>  released; // [tiles] threads that gave it back
    std::deque<node_feed>                nodes;
    uint64_t                             discarded = 0;
};

class staging {
public:
    // `settle` waits until every step that was begun has run.
    staging(device & d, uint64_t seed, std::function<void()> settle);
    ~staging();

    // Before the first step.
    void configure(const rkv_staging_params & p) { params = p; }

    // Plans the step of this graph, gives its copies to the lanes and points its nodes to their feeds. NULL when no tile has
    // to be brought. Throws std::bad_alloc when there is no device memory for the slots.
    std::shared_ptr<step_feeds> begin(graph_copy & graph);

    // On the compute thread, before the step's graph runs.
    void start(const step_feeds & step);

    rkv_staging_totals totals() const;

private:
    friend struct feed_calls;

    // Slots, and everything that counts them.
    struct slots {
        slots(device & d, const rkv_staging_params & params, size_t slot_bytes, uint32_t depth, uint64_t seed);
        ~slots();

        device &   d;
        size_t     slot_bytes;
        uint32_t   depth;
        void *     address;
        rkv::ring  ring;
        timeline   begun;
        timeline   copied[rkv::RING_LANES];
        timeline   released;
        queue      lane_ahead;
        queue      lane_late;

        uint64_t   given[rkv::RING_LANES] = {}; // copies of each lane

        char * slot(uint64_t seq) const;
        void   give(const rkv::ring_copy & copy, size_t v_offset);
    };

    device &               d;
    rkv_staging_params     params{};
    uint64_t               seed;
    std::function<void()>  settle;
    std::unique_ptr<slots> ring;
    std::atomic<uint64_t>  stalls{ 0 };
    std::atomic<uint64_t>  stall_ns{ 0 };
    rkv_staging_totals     before{}; // of slots that were too small

    void     collect_node(const graph_copy::node_pair & pair, step_feeds & step);
    void     collect_tile(const graph_copy::node_pair & pair, int64_t stream, int64_t tile, node_feed & n, step_feeds & step);
    uint32_t depth_for(size_t slot_bytes) const;
    void     need(size_t slot_bytes);
};

} // namespace rkv_sim
