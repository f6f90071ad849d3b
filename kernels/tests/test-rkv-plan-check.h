#pragma once

#include "test-rkv-lanes.h"
#include "test-rkv-small-cache.h"

#include <algorithm>
#include <vector>

// A plan of its own for the same steps, and what was given to the streams against it.
class plan_check {
public:
    plan_check(const shape & s, char * slots, size_t slot_bytes) : s(s), plan_of(s.schedule, s.depth), slots(slots), slot_bytes(slot_bytes) {}

    void begin(const rkv::collected & step, uint32_t n_nodes, uint64_t generation, const two_lanes & lanes) {
        plan = plan_of.begin(step.tiles, n_nodes, generation);
        drop_unread(lanes);
        for (const rkv::ring_copy & c : plan.copies) {
            char * slot = slots + c.seq%s.depth*slot_bytes;
            const bool late = c.lane == rkv::RING_LATE;
            expect(late, slot + c.row0*c.part.k.width, c.part.k, c);
            expect(late, slot + step.layouts[c.index].v_offset + c.row0*c.part.v.width, c.part.v, c);
        }
        if (plan.discarded) {
            released.push_back({ plan.discarded, lanes.now(rkv::STREAM_COMPUTE)[0] });
        }
    }
    void begin_node(uint32_t node, const two_lanes & lanes) { begun.push_back({ plan.first_node + node + 1, lanes.now(rkv::STREAM_COMPUTE)[0] }); }
    void release(size_t tile, const two_lanes & lanes) { released.push_back({ plan.uses[tile].released, lanes.now(rkv::STREAM_COMPUTE)[0] }); }

    // A reader waits for the copies ahead that its tile is made of.
    void acquired(size_t tile, const two_lanes & lanes) {
        const uint64_t copies = plan.uses[tile].copied[rkv::RING_AHEAD];
        n_wrong += lanes.now(rkv::STREAM_COMPUTE)[1] < moves_of(copies);
    }

    // Everything that was given, in order and with what is before it. Copies ahead of a step that did not come may be missing.
    bool holds(const two_lanes & lanes) {
        size_t n[2] = {};
        size_t waited = 0;
        for (const two_lanes::moved & m : lanes.log) {
            const auto & list = expected[m.pulled];
            if (n[m.pulled] == list.size()) {
                return false;
            }
            const move & e = list[n[m.pulled]++];
            if (e.dst != m.dst || !(e.rows == m.rows)) {
                return false;
            }
            const size_t before = std::max(point_of(released, e.copy.after_released), point_of(begun, e.copy.after_begun));
            if (m.pulled) {
                n_wrong += m.after[0] < before || m.after[1] < moves_of(e.copy.after_ahead);
            } else {
                // Not less than the plan says, and not more.
                waited = std::max(waited, before);
                n_wrong += m.after[0] != waited;
            }
        }
        return n_wrong == 0 && n[1] == expected[1].size();
    }

private:
    struct move {
        char *         dst;
        rkv::ring_rows rows;
        rkv::ring_copy copy;
    };
    struct point {
        uint64_t value;
        size_t   at; // things of the computing lane that lie before
    };

    const shape &      s;
    rkv::ring          plan_of;
    char *             slots;
    size_t             slot_bytes;
    rkv::ring_plan     plan;
    std::vector<move>  expected[2]; // copies ahead; late ones
    std::vector<point> released, begun;
    size_t             n_wrong = 0;

    void expect(bool late, char * dst, const rkv::ring_rows & rows, const rkv::ring_copy & copy) {
        if (rows.bytes() > 0) {
            expected[late].push_back({ dst, rows, copy });
        }
    }

    // Of the copies ahead that were not given yet, those that the step does not read are not given any more.
    void drop_unread(const two_lanes & lanes) {
        const size_t n_given = size_t(std::count_if(lanes.log.begin(), lanes.log.end(), [](const two_lanes::moved & m) { return !m.pulled; }));
        const auto   unread  = [&](const move & m) {
            return std::none_of(plan.uses.begin(), plan.uses.end(), [&](const rkv::ring_use & u) { return u.seq == m.copy.seq; });
        };
        expected[0].erase(std::remove_if(expected[0].begin() + n_given, expected[0].end(), unread), expected[0].end());
    }

    static size_t point_of(const std::vector<point> & list, uint64_t value) {
        for (const point & p : list) {
            if (p.value >= value && value > 0) {
                return p.at;
            }
        }
        return 0;
    }

    // K and V of the first `copies` copies ahead are moves of their own.
    size_t moves_of(uint64_t copies) const {
        return size_t(std::count_if(expected[0].begin(), expected[0].end(), [&](const move & m) { return m.copy.number < copies; }));
    }
};
