#pragma once

// Two streams of a card on paper. What is given to them is kept, and carried out later: in the order of each stream, and of what events
// say, but otherwise at any time. Also says of each thing that was given what is sure to have been done before it.

#include "rkv-stream-ring.h"
#include "test-rkv-cuda-host.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <vector>

// Which stream goes on when both could.
enum class pace {
    random,
    copies_first,
    copies_last,
};

class two_lanes : public rkv::stream_queue, public rkv::node_queue {
public:
    two_lanes(pace p, uint32_t seed) : p(p), rng(seed) {}

    // What of each lane is done before something: the first so many of the things that were given to it.
    using clock = std::array<size_t, 2>;

    bool make_events(size_t n) override;
    void record(rkv::stream_lane lane, size_t event) override;
    void wait(rkv::stream_lane lane, size_t event) override;
    void copy(char * dst, const rkv::ring_rows & rows) override;
    void pull(char * dst, const rkv::ring_rows & rows) override;
    void synchronize() override;

    void tiles(const rkv::attn_tiles & a, int n_tiles) override;
    void merge(const rkv::merge_tiles & a) override;
    void copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) override;
    void zero(char * dst, size_t bytes) override;
    void convert(const rkv::convert_rows & a) override;

    // Anything else that computes.
    void compute(std::function<void()> work) { give(rkv::STREAM_COMPUTE, std::move(work)); }

    // Carries out everything of a lane; of the other one, only what that takes.
    void finish(rkv::stream_lane lane);

    // One move of rows from the host, as it was given.
    struct moved {
        bool           pulled;
        char *         dst;
        rkv::ring_rows rows;
        clock          after;
    };
    std::vector<moved> log;

    // What is done before whatever is given to the lane next.
    clock now(rkv::stream_lane lane) const { return known[lane]; }

    bool stuck = false; // both waited for each other

private:
    struct given {
        std::function<void()> work; // empty: it waits
        size_t                event;
        uint64_t              records; // that it waits for
    };

    pace              p;
    std::mt19937      rng;
    std::deque<given> lanes[2];
    host_queue        host;

    std::vector<uint64_t> recorded; // [events] times that it was given to be recorded
    std::vector<uint64_t> reached;  // [events] times that it was
    std::vector<clock>    at;       // [events]
    clock                 known[2] = {};

    void give(rkv::stream_lane lane, std::function<void()> work);
    bool go_on(int lane);
    void go_on_some();
};
