#pragma once

// What a decode step takes when some of each layer's tail comes over the link and the rest is attended to by the host: the ring's
// rules, played through on paper.

#include <cstdint>
#include <vector>

namespace rkv {

// A layer as a step finds it. Times in seconds.
struct step_layer {
    double window_s      = 0; // attention over its window
    double tail_bytes    = 0; // in use
    double row_bytes     = 0; // of its tail that the step itself writes
    double copy_bytes    = 0; // of a copy
    double device_s_byte = 0; // that the device takes to read what was brought
    double host_s_byte   = 0; // that the host's kernel takes
    double query_bytes   = 0; // that go to the host
    double partial_bytes = 0; // that come back for each tile
    double tile_bytes    = 0;
};

struct step_model {
    double   link_bytes_s = 0; // 0: without end
    double   memory_bytes_s = 0; // of the host's memory, which link and host read together; 0: without end
    double   latency_s    = 0;
    uint32_t slots        = 1;
    double   node_s       = 0; // what a layer computes beside its attention
    std::vector<step_layer> layers;
};

// Seconds of a step of which the host attends to this share of each tail.
double step_s(const step_model & step, double host_share);

// The share that makes the step shortest.
double best_share(const step_model & step);

} // namespace rkv
