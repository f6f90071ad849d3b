#pragma once

// A ring whose device has in-order streams and events, as cards do: the copies that rkv-ring.h plans, in the order and with the waits
// that streams can express.
//
// An event can be waited for once it was recorded, and only as it was recorded last. A copy that waits for a slot whose reader was not
// given to its stream yet is therefore held back on the host, and given right behind that reader. The host runs far ahead of the
// device, so it still comes early.
//
// There are two lanes. Readers, and the writes of new rows, are in the lane that computes. Copies that run ahead have a lane of their own.
// Late rows, which the step itself writes, are pulled by the computing lane right before their reader: they follow the write by
// order alone, are few, and do not queue up behind a large copy in the engine that copies.

#include "rkv-collect.h"
#include "rkv-ring.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace rkv {

enum stream_lane : int {
    STREAM_COMPUTE = 0,
    STREAM_COPY    = 1,
};

// What the ring asks of a device. Nothing here waits on the host but `synchronize`.
class stream_queue {
public:
    virtual ~stream_queue() = default;

    // Makes events 0 .. n - 1. False when they cannot be had. Before the first step.
    virtual bool make_events(size_t n) = 0;

    virtual void record(stream_lane lane, size_t event) = 0;
    virtual void wait(stream_lane lane, size_t event) = 0;

    // Rows of host memory, one behind the other: by the engine that copies, in its lane; or read by a kernel, in the lane that computes.
    virtual void copy(char * dst, const ring_rows & rows) = 0;
    virtual void pull(char * dst, const ring_rows & rows) = 0;

    // Waits for both lanes.
    virtual void synchronize() = 0;
};

class stream_ring {
public:
    // `slots`: depth*slot_bytes of device memory.
    stream_ring(stream_queue & queue, ring_schedule schedule, uint32_t depth, ring_fault fault, char * slots, size_t slot_bytes);
    ~stream_ring(); // after everything that was given

    stream_ring(const stream_ring &) = delete;
    stream_ring & operator=(const stream_ring &) = delete;

    // Events that the queue must have made.
    static size_t n_events(uint32_t depth);

    // Plans a step, and gives the copies that can be given. Its nodes begin in order, and every tile is acquired and released, in order.
    void begin(const collected & step, uint32_t n_nodes, uint64_t generation);

    // The computing lane has come to a node of the step: everything that the step writes for it was given to the lane.
    void begin_node(uint32_t node);

    // Lets the computing lane wait for a tile; the slot where it then lies.
    char * acquire(size_t tile);

    // Its readers were given to the computing lane.
    void release(size_t tile);

    // Whether every tile of the step was released.
    bool is_done() const { return n_released_of_step == uses.size(); }

    const ring_totals & totals() const { return plan_of.totals(); }

private:
    // A point in the computing lane, with what is done there.
    struct mark {
        uint64_t number; // counted since the ring was made
        uint64_t begun;
        uint64_t released;
    };

    // A copy, and where its rows go.
    struct pending {
        ring_copy copy;
        char *    k;
        char *    v;
        bool      dropped; // for a step that came out otherwise: nobody reads it, and its rows may be gone
    };

    stream_queue &        queue;
    ring                  plan_of;
    uint32_t              depth;
    char *                slots;
    size_t                slot_bytes;

    uint64_t              begun    = 0; // nodes and tiles, as far as the host has given them to the computing lane
    uint64_t              released = 0;
    std::deque<mark>      marks;        // those whose events still stand for them
    uint64_t              n_mark   = 0;
    std::deque<pending>   waiting;      // copies ahead that cannot be given yet

    uint64_t              given         = 0; // copies ahead that were given
    uint64_t              waited_mark   = 0; // marks that the copying lane has waited for
    uint64_t              waited_copies = 0; // copies ahead that the computing lane has waited for

    uint64_t              first_node = 0;    // of this step
    std::vector<ring_use> uses;              // [tiles of the step]
    std::vector<pending>  late;              // [tiles of the step]; no rows where none are late
    size_t                n_released_of_step = 0;

    pending place(const ring_copy & copy, const collected & step) const;
    void    drop_unread();
    void    set_mark();
    void    give(const pending & p);
    void    give_ready();
};

} // namespace rkv
