#pragma once

// Which tiles of its tail a node reads in a step, and how they are put together into copies. Device-independent: it looks at the
// node's views and at what the cache says of the step.

#include "rkv-balance.h"
#include "rkv-host-api.h"
#include "rkv-ring.h"

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

// The part of a node's cells that lies in tail memory: cells [begin, end).
struct tail_part {
    const ggml_tensor * k;
    const ggml_tensor * v;
    int64_t             begin;
    int64_t             end;
};

// Of a node that has no tail: its only part.
tail_part tail_of(const ggml_tensor * node);

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

// To the ring a tile is what one copy brings: one or several tiles of a node.
struct collected {
    std::vector<ring_tile>   tiles;
    std::vector<slot_layout> layouts; // [tiles]
};

// Values of an index of tiles beside those that say which copy brings one.
constexpr int NOT_BROUGHT = -1; // not in use, or in the window
constexpr int host_tile(int i) { return -2 - i; } // the i-th of the host's, and back

// Adds what the step brings for a node, the step's `number`th: copies of up to `copy_cells` cells, at least a tile. `index`: [streams of
// the node, tiles of its cells] into the tiles. Of each stream's tail the first ring[stream] tiles are brought, all with NULL; the others
// are added to `host`. False when there is nothing of either.
bool collect_tiles(const ggml_tensor * node, uint32_t number, uint32_t copy_cells, collected & step, std::vector<int> & index,
        const uint32_t * ring = nullptr, std::vector<rkv_host_tile> * host = nullptr);

// The node's tails as far as they are in use, one a stream.
void collect_items(const ggml_tensor * node, std::vector<balance_item> & items);

} // namespace rkv
