#pragma once

// How much of a cache fits, by arithmetic alone: what a context does when it is made, and what a plan says before.

#include <algorithm>
#include <cstdint>

namespace rkv {

// Of a device's free memory, what a window may take when nothing else was asked for. `reserve` stays free; 0: an eighth of it and half a
// GiB, for working memory.
uint64_t usable_bytes(uint64_t free_bytes, uint64_t reserve);

// A cache that has to fit a budget.
struct window_need {
    uint64_t budget  = 0; // bytes
    uint64_t fixed   = 0; // bytes of layers whose size is settled
    uint64_t row     = 0; // bytes of a cell over all other layers and streams
    uint32_t kv_size = 0; // cells of a stream
    uint32_t tile    = 0; // cells
};

// Cells of the window: all of them, or whole tiles.
uint32_t fit_window(const window_need & need);

// The host's share of a tail of so many bytes, where a step computes for `compute_s` seconds besides, and link and host work at these rates
// (bytes per second): both then end together.
inline double best_host_share(double tail_bytes, double compute_s, double link_bytes_s, double host_bytes_s) {
    if (tail_bytes <= 0 || host_bytes_s <= 0) {
        return 0;
    }
    const double by_host = (tail_bytes - link_bytes_s*compute_s)/(1 + link_bytes_s/host_bytes_s);
    return std::clamp(by_host/tail_bytes, 0.0, 1.0);
}

} // namespace rkv
