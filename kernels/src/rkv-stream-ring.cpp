#include "rkv-stream-ring.h"

#include "ggml.h"

#include <algorithm>

namespace rkv {

// Marks of the computing lane that a copy may still want to wait for one by one; an older one is replaced by a later one, which is only
// a longer wait.
static size_t n_marks_kept(uint32_t depth) {
    return std::max<size_t>(64, 2*size_t(depth) + 16);
}

// No more copies are given and not waited for than there are slots.
static size_t n_copies_kept(uint32_t depth) {
    return size_t(depth) + 1;
}

size_t stream_ring::n_events(uint32_t depth) {
    return n_marks_kept(depth) + n_copies_kept(depth);
}

stream_ring::stream_ring(stream_queue & queue, ring_schedule schedule, uint32_t depth, ring_fault fault, char * slots, size_t slot_bytes)
    : queue(queue), plan_of(schedule, depth, fault), depth(plan_of.depth()), slots(slots), slot_bytes(slot_bytes) {}

stream_ring::~stream_ring() {
    queue.synchronize();
}

stream_ring::pending stream_ring::place(const ring_copy & copy, const collected & step) const {
    char * slot = slots + copy.seq % depth*slot_bytes;
    return { copy, slot + copy.row0*copy.part.k.width, slot + step.layouts[copy.index].v_offset + copy.row0*copy.part.v.width, false };
}

void stream_ring::begin(const collected & step, uint32_t n_nodes, uint64_t generation) {
    GGML_ASSERT(is_done() && "a step began before the one before had read its tiles");
    const ring_plan plan = plan_of.begin(step.tiles, n_nodes, generation);
    first_node = plan.first_node;
    uses       = plan.uses;
    late.assign(uses.size(), pending());
    n_released_of_step = 0;
    drop_unread();

    for (const ring_copy & copy : plan.copies) {
        const pending p = place(copy, step);
        if (copy.lane == RING_AHEAD) {
            waiting.push_back(p);
        } else {
            late[copy.index] = p;
        }
    }
    if (plan.discarded) {
        released = plan.discarded;
        set_mark();
    }
    give_ready();
}

// Of the copies that are still held back, those that the step does not read. They are given as nothing but their event.
void stream_ring::drop_unread() {
    const auto before = [](const ring_use & use, uint64_t seq) { return use.seq < seq; };
    for (pending & p : waiting) {
        const auto use = std::lower_bound(uses.begin(), uses.end(), p.copy.seq, before);
        p.dropped = p.dropped || use == uses.end() || use->seq != p.copy.seq;
    }
}

void stream_ring::begin_node(uint32_t node) {
    begun = first_node + node + 1;
    set_mark();
    give_ready();
}

char * stream_ring::acquire(size_t tile) {
    const ring_use & use = uses[tile];
    GGML_ASSERT(use.copied[RING_AHEAD] <= given && "a tile is read before its copy could be given");
    if (use.copied[RING_AHEAD] > waited_copies) {
        queue.wait(STREAM_COMPUTE, n_marks_kept(depth) + (use.copied[RING_AHEAD] - 1) % n_copies_kept(depth));
        waited_copies = use.copied[RING_AHEAD];
    }
    const pending & p = late[tile];
    if (p.copy.part.bytes() > 0) {
        // What it waits for lies before it in its own lane, but for the copies ahead, which were just waited for.
        GGML_ASSERT(p.copy.after_begun <= begun && p.copy.after_released <= released && p.copy.after_ahead <= waited_copies);
        queue.pull(p.k, p.copy.part.k);
        if (p.copy.part.v.bytes() > 0) {
            queue.pull(p.v, p.copy.part.v);
        }
    }
    return slots + use.seq % depth*slot_bytes;
}

void stream_ring::release(size_t tile) {
    released = uses[tile].released;
    n_released_of_step++;
    set_mark();
    give_ready();
}

void stream_ring::set_mark() {
    if (marks.size() == n_marks_kept(depth)) {
        marks.pop_front();
    }
    queue.record(STREAM_COMPUTE, n_mark % n_marks_kept(depth));
    marks.push_back({ n_mark++, begun, released });
}

void stream_ring::give(const pending & p) {
    const ring_copy & c = p.copy;
    if (!p.dropped && (c.after_begun > 0 || c.after_released > 0)) {
        const auto first = std::find_if(marks.begin(), marks.end(), [&](const mark & m) { return m.begun >= c.after_begun && m.released >= c.after_released; });
        GGML_ASSERT(first != marks.end());
        if (first->number >= waited_mark) {
            queue.wait(STREAM_COPY, first->number % n_marks_kept(depth));
            waited_mark = first->number + 1;
        }
    }
    if (!p.dropped) {
        queue.copy(p.k, c.part.k);
    }
    if (!p.dropped && c.part.v.bytes() > 0) {
        queue.copy(p.v, c.part.v);
    }
    queue.record(STREAM_COPY, n_marks_kept(depth) + c.number % n_copies_kept(depth));
    given = c.number + 1;
}

void stream_ring::give_ready() {
    while (!waiting.empty() && waiting.front().copy.after_begun <= begun && waiting.front().copy.after_released <= released) {
        give(waiting.front());
        waiting.pop_front();
    }
}

} // namespace rkv
