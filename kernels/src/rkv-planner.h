#pragma once

// How much of a cache fits, by arithmetic alone: what a context does when it is made, and what a plan says before.

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

} // namespace rkv
