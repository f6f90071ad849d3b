#pragma once

// The staging ring of one context: its slots, its stream of copies, and the step that runs.

#include "rkv-balance.h"
#include "rkv-collect.h"
#include "rkv-cuda-host.h"
#include "rkv-plan.h"
#include "rkv-step.h"
#include "rkv-stream-ring.h"

#include "ggml.h"

#include <memory>
#include <vector>

struct ggml_backend_cuda_context;
struct ggml_cgraph;

class rkv_cuda_streams;

// A node of the step that has tiles to bring: tiles [first, first + n) of the step; or tiles that the host attends to.
struct rkv_cuda_node {
    const ggml_tensor *  node;
    size_t               first;
    size_t               n;
    rkv_cuda_host_node * host; // NULL: none
};

class rkv_cuda_ring {
public:
    explicit rkv_cuda_ring(ggml_backend_cuda_context & ctx);
    ~rkv_cuda_ring();

    rkv_cuda_ring(const rkv_cuda_ring &) = delete;
    rkv_cuda_ring & operator=(const rkv_cuda_ring &) = delete;

    // The ring of a context; made on first use when `make`, else NULL while there is none.
    static rkv_cuda_ring * of(ggml_backend_cuda_context & ctx, bool make);
    static void            free(ggml_backend_cuda_context & ctx);

    // Chooses what was not asked for, and takes the slots. False when there is no memory for them. Between steps.
    bool prepare(const rkv_staging_params & params, const rkv_staging_need & need);

    // Plans the step of this graph, and gives its first copies. False when there is no memory for the slots.
    bool begin(const ggml_cgraph * graph);
    void end();

    // The node's tiles, when some are brought for it; and the computing stream has come to it. NULL when none are.
    const rkv_cuda_node * begin_node(const ggml_tensor * node);

    const rkv::ring_tile &   tile(size_t i) const { return step.tiles[i]; }
    const rkv::slot_layout & layout(size_t i) const { return step.layouts[i]; }

    // See rkv-stream-ring.h.
    char * acquire(size_t i);
    void   release(size_t i);

    rkv_cuda_host & host() { return host_side; }

    rkv_staging_totals totals() const;

    // A row of zeroes on the device, for RKV_FAULT_STALE_TILE; NULL in a step that began without it.
    const char * zero_row() const { return zeroes; }

    // Of the step that is given in pieces: see rkv-cuda-pieces.cu.
    bool     in_pieces      = false;
    uint64_t graph_launches = 0; // pieces that were launched as captured graphs

private:
    struct slots_of;

    ggml_backend_cuda_context & ctx;
    rkv_staging_params          params{};
    rkv::staging_plan           plan{ 0, 2, 0 };
    rkv::link_speed             link;
    std::unique_ptr<rkv_cuda_streams> queue;
    std::unique_ptr<slots_of>   slots;
    rkv_staging_totals          before{}; // of slots that were too small
    char *                      zeroes = nullptr;

    rkv::collected             step;
    std::vector<rkv_cuda_node> nodes;
    size_t                     next     = 0;     // of the nodes
    bool                       rewrites = false; // the step changes a tail by more than new rows

    // What the last step's begin saw, to measure it by the next one's.
    struct mark {
        bool     few_queries = false;
        double   at = 0; // seconds
        uint64_t wait_ns = 0, busy_ns = 0, busy_bytes = 0, link_bytes = 0, changes = 0;
    };
    rkv_cuda_host                      host_side;
    std::unique_ptr<rkv::tail_balance> balance;
    mark                               last;
    uint64_t                           host_steps = 0;

    bool need(size_t slot_bytes);
    bool collect(const ggml_tensor * node, const uint32_t * ring);
    bool collect_all(const ggml_cgraph * graph);
    void measure(bool few_queries, uint64_t link_bytes);
};
