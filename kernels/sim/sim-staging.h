#pragma once

// Brings a step's tiles from pinned host memory to the device, as rkv-ring.h says, and hands them to the attention nodes.

#include "sim-carrier.h"
#include "sim-clock.h"
#include "sim-device.h"
#include "sim-graph.h"
#include "sim-host.h"
#include "sim-tiles.h"

#include "rkv-attn-node.h"
#include "rkv-plan.h"
#include "rkv-ring.h"
#include "rkv-step.h"

#include <atomic>
#include <functional>
#include <memory>

namespace rkv_sim {

class staging {
public:
    // `settle` waits until every step that was begun has run.
    staging(device & d, device_clock & clock, uint64_t seed, std::function<void()> settle);
    ~staging();

    // Chooses what was not asked for, and takes the slots. False when there is no device memory for them, or no host engine that was
    // asked for. Between steps.
    bool prepare(const rkv_staging_params & params, const rkv_staging_need & need);

    // Plans the step of this graph, gives its copies to the lanes and points its nodes to their feeds. NULL when no tile has
    // to be brought. The device computes with `n_threads`. Throws std::bad_alloc when there is no device memory for the slots.
    std::shared_ptr<step_feeds> begin(graph_copy & graph, int n_threads);

    // On the compute thread, before the step's graph runs.
    void start(const step_feeds & step);

    rkv_staging_totals totals() const;

private:
    friend struct feed_calls;

    // Slots, and everything that counts them.
    struct slots {
        slots(device & d, device_clock & clock, const rkv_staging_params & params, size_t slot_bytes, uint32_t depth, uint64_t seed);
        ~slots();

        device &                 d;
        size_t                   slot_bytes;
        uint32_t                 depth;
        bool                     own; // the memory at `address`; false with RKV_FAULT_RING_OWNER alone
        void *                   address;
        rkv::ring                ring;
        std::unique_ptr<carrier> copies;

        char *   slot(uint64_t seq) const;
        uint64_t bytes() const { return uint64_t(slot_bytes)*depth; }
    };

    device &               d;
    device_clock &         clock;
    rkv_staging_params     params{};
    rkv::staging_plan      plan{ 0, 2, 0 };
    rkv::link_speed        link;
    uint64_t               seed;
    std::function<void()>  settle;
    std::unique_ptr<slots> ring;
    std::atomic<uint64_t>  stalls{ 0 };
    std::atomic<uint64_t>  stall_ns{ 0 };
    rkv_staging_totals     before{}; // of slots that were too small

    // What the last step's begin saw, to measure it by the next one's.
    struct mark {
        bool     few_queries = false;
        reckoned at{ 0 };
        uint64_t stall_ns = 0, wait_ns = 0, busy_ns = 0, link_bytes = 0, host_bytes = 0;
    };

    host_side                          host;
    std::unique_ptr<rkv::tail_balance> balance;
    mark                               last;
    uint64_t                           host_steps = 0;

    void need(size_t slot_bytes);
    void collect(graph_copy & graph, step_feeds & step, int n_threads);
    void give_copies(step_feeds & step);
    void measure(const step_feeds & step);
};

} // namespace rkv_sim
