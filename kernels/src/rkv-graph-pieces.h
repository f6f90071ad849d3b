#pragma once

// A step cut where attention reads a tail.
//
// A captured graph is launched as a whole, and what feeds a tail to attention is not of one launch: copies that run ahead into the next
// step, waits for slots, a host that chooses its share anew. Everything else of a step is the same kernels every time. So a step is
// given to its device in pieces: attention over a tail by itself, and what lies between two of them, which a device can capture.

#include "ggml.h"

#include <vector>

struct ggml_cgraph;

namespace rkv {

// Nodes [begin, end) of a graph.
struct graph_piece {
    int  begin, end;
    bool reads_tail; // nodes that read a tail, and nothing else that is computed
};

// Whether a node reads a tail.
typedef bool (*reads_tail_fn)(const ggml_tensor * node);

// The pieces of a graph, in order; all of its nodes are in one. Nodes that compute nothing, such as views, stay with those before them, so that
// no piece that could be captured is without a kernel. One piece when nothing reads a tail, or nothing else is computed.
std::vector<graph_piece> graph_pieces(const ggml_cgraph * graph, reads_tail_fn reads_tail);

} // namespace rkv
