// A step that reads a tail, given in pieces: upstream captures and launches what lies between as CUDA graphs, each under the name of its first
// node, and attention over the tail is launched kernel by kernel. See rkv-graph-pieces.h.

#include "rkv-cuda.h"

#include "rkv-cuda-ring.h"
#include "rkv-graph-pieces.h"

#include "rkv-attn-args.h"

#include "common.cuh"
#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <atomic>

#ifdef USE_CUDA_GRAPH

// Longer batches are not the same from step to step.
static bool is_a_step(const ggml_cgraph * graph) {
    bool any = false;
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (rkv_cuda_reads_tail(graph->nodes[i])) {
            if (graph->nodes[i]->src[0]->ne[1] > rkv::TILES_QUERIES_MAX) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

// Whether upstream launched a piece as a graph.
static bool was_captured(ggml_backend_cuda_context & ctx, const ggml_cgraph & piece) {
    const ggml_cuda_graph * g = ctx.cuda_graph(piece.nodes[0]);
    return g->is_enabled() && g->warmup_complete && g->instance != nullptr;
}

bool rkv_cuda_in_pieces(ggml_backend_t backend, ggml_cgraph * graph, rkv_cuda_compute_fn compute, ggml_status & status) {
    auto & ctx = *(ggml_backend_cuda_context *) backend->context;
    rkv_cuda_ring * ring = rkv_cuda_ring::of(ctx, false);
    // Streams beside each other fork before attention and join at it: such a step stays whole.
    if (!ring || ring->in_pieces || !ctx.stream_context().concurrent_events.empty() || !is_a_step(graph)) {
        return false;
    }
    const std::vector<rkv::graph_piece> pieces = rkv::graph_pieces(graph, rkv_cuda_reads_tail);
    if (pieces.size() < 2) {
        return false;
    }
    static std::atomic<bool> told{ false };
    if (!told.exchange(true)) {
        GGML_LOG_INFO("rolling-kv: attention reads a tail: it is launched kernel by kernel, and what lies between as CUDA graphs\n");
    }

    ring->in_pieces = true;
    for (const rkv::graph_piece & p : pieces) {
        ggml_cgraph piece = ggml_graph_view(graph, p.begin, p.end);
        // Upstream looks for changes only in a graph of another number. The first piece has the whole graph's name, which may have been given whole.
        piece.uid = p.begin == 0 ? 0 : graph->uid;
        status = compute(backend, &piece);
        if (status != GGML_STATUS_SUCCESS) {
            break;
        }
        ring->graph_launches += !p.reads_tail && was_captured(ctx, piece);
    }
    ring->in_pieces = false;
    rkv_cuda_end(ctx, graph);
    return true;
}

#else

bool rkv_cuda_in_pieces(ggml_backend_t, ggml_cgraph *, rkv_cuda_compute_fn, ggml_status &) {
    return false;
}

#endif
