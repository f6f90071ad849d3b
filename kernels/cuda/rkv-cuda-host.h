#pragma once

// The host's side of a CUDA device: it attends to tiles where they lie while the device attends to the others.
//
// The query and the mask go down in the stream that computes. A host function behind them starts the host's threads and returns, so that
// the stream goes on with the window. Where the stream needs partials, another host function waits for them, and a kernel reads
// them from pinned memory. So everything is in the order of the stream; nothing is allocated in a node, and no event is made.
//
// What a step uses stays until the step after it has ended: a host that plans ahead of the device has two sets.

#include "rkv-cuda-node.h"

#include "rkv-host-api.h"

#include "ggml.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

struct ggml_backend_cuda_context;

// One node of a step.
struct rkv_cuda_host_node {
    const ggml_tensor *        from;        // where the device has query and mask
    std::vector<rkv_host_tile> tiles;
    uint64_t                   bytes = 0;   // K and V that the host reads
    ggml_tensor                node;        // as the host sees it
    ggml_tensor                query;
    ggml_tensor                mask;        // none when node.src[3] is NULL
    bool                       brings_mask; // no node before it did
    float *                    results = nullptr; // pinned
    rkv_host_job *             job     = nullptr;

    // What a host function is given.
    struct wait {
        class rkv_cuda_host * owner;
        rkv_host_job *        job;
        size_t                first, count; // tiles
    };
    std::deque<wait> waits;
};

struct rkv_cuda_host_totals {
    std::atomic<uint64_t> tiles{ 0 }, bytes{ 0 }, down{ 0 }, up{ 0 }, wait_ns{ 0 };
};

class rkv_cuda_host {
public:
    explicit rkv_cuda_host(ggml_backend_cuda_context & ctx);
    ~rkv_cuda_host(); // after everything that was given to the stream

    // `functions`: the CPU backend's, or NULL. `n_threads`: of the host.
    void use(const rkv_host_engine_api * functions, int n_threads);
    bool known() const { return api; }

    // A step is planned; waits until the step before the last has ended.
    void begin();
    // Adds a node of it. NULL when there is no memory or there are no threads for it.
    rkv_cuda_host_node * plan(const ggml_tensor * node, std::vector<rkv_host_tile> tiles);
    // Everything of the step was given to the stream.
    void end();

    // The stream has come to the node.
    void start(rkv_cuda_host_node & n);
    void partials(rkv_cuda_host_node & n, size_t first, size_t count, float * sums, float * o);

    const rkv_cuda_host_totals & totals() const { return sums; }

    // Nanoseconds that the host's threads took for the steps that have ended, and bytes of K and V that they read in these.
    uint64_t busy_ns() const { return ended_ns; }
    uint64_t busy_bytes() const { return ended_bytes; }

private:
    struct pinned; // memory that is only taken, until all of it is given back
    struct set;    // what one step uses

    ggml_backend_cuda_context & ctx;
    const rkv_host_engine_api * api    = nullptr;
    rkv_host_engine *           engine = nullptr;
    int                         n_threads = 1;
    std::unique_ptr<set>        sets[2];
    int                         now = 0;
    rkv_cuda_host_totals        sums;
    uint64_t                    ended_ns    = 0;
    uint64_t                    ended_bytes = 0;

    void clear(set & s);
    void go_down(const ggml_tensor * from, const ggml_tensor & to);
    static void run_start(void * job);
    static void run_wait(void * wait);
};
