#pragma once

// The staging ring: which tile of the tail is copied to the device when, and into which slot.
//
// A step evaluates its attention nodes in order; a node reads its tiles in order of (stream, tile). That flat list of tiles
// is copied slot by slot, ahead of its readers: a slot is filled again once its reader is done, whatever layer that was. Of a
// tile that the step itself writes, the rows that it leaves alone go ahead with the others; only the written ones wait for the
// write, in a lane of their own, so that they hold up nobody. When the list ends, copying goes on with the first tiles of the
// next step, which will very likely be the same.
//
// This file knows neither threads nor devices. It says what is to be copied and what each copy waits for, in terms of
// counters that only grow; a device turns that into its own queues and events.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

// Rows of one part of a tile: `rows` of `width` bytes, `stride` bytes apart. Packed in its slot.
struct ring_rows {
    const char * src    = nullptr;
    size_t       width  = 0;
    size_t       stride = 0;
    size_t       rows   = 0;

    size_t bytes() const { return width*rows; }
    bool   operator==(const ring_rows & o) const { return src == o.src && width == o.width && stride == o.stride && rows == o.rows; }
};

// Rows of K and V. Those of V are none where V is a part of K's rows.
struct ring_part {
    ring_rows k;
    ring_rows v;

    size_t bytes() const { return k.bytes() + v.bytes(); }
    bool   operator==(const ring_part & o) const { return k == o.k && v == o.v; }
};

// One tile of one attention node. The rows of a part start at `row0` of the tile.
struct ring_tile {
    uint32_t  node   = 0;     // attention node of the step, counted from 0
    uint32_t  stream = 0;     // of the node
    uint32_t  tile   = 0;     // of the node's cells
    ring_part stable;         // rows that the step does not write: from the tile's first row on; may be none
    ring_part written;        // rows that it does, and those behind them; may be none
    ring_part all;            // every row in use: what the next step leaves alone, if it only appends
};

enum class ring_schedule {
    ring, // ahead of the readers, across layers and steps
    op,   // a node's tiles are copied once the node has begun: what a double buffer inside the op does
};

enum ring_lane : int {
    RING_AHEAD = 0, // rows that the step does not write
    RING_LATE  = 1, // rows that it does
    RING_LANES = 2,
};

// One copy. Per lane, copies are given to the device in order.
struct ring_copy {
    ring_lane lane;
    uint64_t  number;         // of the lane's copies, counted from 0 since the ring was made
    uint64_t  seq;            // of the tile, counted the same; it goes to slot seq % depth
    size_t    index;          // of the tile in the step's list; of a copy for the next step, of its model there
    size_t    row0;           // row of the tile that it begins with
    ring_part part;
    uint64_t  after_released; // waits until so many tiles were given back
    uint64_t  after_begun;    // waits until so many attention nodes have begun since the ring was made
    uint64_t  after_ahead;    // waits until so many copies of the lane ahead have ended: one that was given for a step that
                              // came out otherwise may still be on its way to the same slot
};

// Where a reader finds its tile, what it waits for, and what it tells when it gives the tile back.
struct ring_use {
    uint64_t seq;
    uint64_t copied[RING_LANES]; // copies of each lane that must have ended
    uint64_t released;           // tiles that are given back then: seq + 1, or more where discarded ones follow
};

// What one step asks of the device.
struct ring_plan {
    std::vector<ring_copy> copies;       // to be given to the lanes, in order
    std::vector<ring_use>  uses;         // [tiles of the step]
    uint64_t               discarded;    // tiles that are given back unread before the first reader; 0: none
    uint64_t               first_node;   // number of the step's first node since the ring was made
};

struct ring_totals {
    uint64_t steps           = 0;
    uint64_t tiles_early     = 0; // of which some rows were copied ahead of their node
    uint64_t tiles_late      = 0; // of which all were copied after their node had begun
    uint64_t tiles_kept      = 0; // of the early ones, copied while an earlier step still ran
    uint64_t tiles_discarded = 0; // copied ahead for nothing
    uint64_t bytes           = 0; // of all copies
    uint64_t bytes_late      = 0; // of those that waited for their node
};

// What a test takes out of the protocol to show that it is needed.
enum ring_fault {
    RING_FAULT_NONE       = 0,
    RING_FAULT_STALE      = 1, // tiles that the step writes are copied with the others, ahead of the write
    RING_FAULT_REUSE      = 2, // a slot is filled without waiting for its reader
    RING_FAULT_GENERATION = 3, // a change of the tail between steps is not noticed
    RING_FAULT_IDENTITY   = 4, // tiles given ahead are taken for the step's first ones, whatever those are
};

class ring {
public:
    // `depth` slots, 1 or more.
    ring(ring_schedule schedule, uint32_t depth, ring_fault fault = RING_FAULT_NONE);

    // A step with these tiles, in the order of their readers, over `n_nodes` attention nodes. `generation` grows whenever the
    // tail's bytes are changed by anything else than the steps themselves.
    ring_plan begin(const std::vector<ring_tile> & tiles, uint32_t n_nodes, uint64_t generation);

    uint32_t            depth() const { return n_slot; }
    const ring_totals & totals() const { return sums; }

private:
    ring_schedule schedule;
    uint32_t      n_slot;
    ring_fault    fault;
    ring_totals   sums;

    uint64_t seq                = 0;  // of the next tile
    uint64_t number[RING_LANES] = {}; // of the next copy
    uint64_t n_begun            = 0;  // nodes of all steps so far
    uint64_t generation         = 0;

    // Tiles that were given ahead, for a step that has not come yet.
    struct given {
        ring_part part;
        uint64_t  copied; // copies of the lane ahead, with this one
    };
    std::vector<given> ahead;

    void     copy(ring_plan & plan, ring_lane lane, uint64_t of_seq, size_t index, size_t row0, const ring_part & part, uint64_t after_begun,
              uint64_t after_ahead = 0);
    size_t   keep(const std::vector<ring_tile> & tiles, uint64_t generation) const;
    ring_use place(ring_plan & plan, const std::vector<ring_tile> & tiles, size_t index);
    void     run_ahead(ring_plan & plan, const std::vector<ring_tile> & tiles, uint64_t first_node);
};

} // namespace rkv
