#include "test-rkv-lanes.h"

#include <algorithm>
#include <cstring>

using rkv::STREAM_COMPUTE;
using rkv::STREAM_COPY;

bool two_lanes::make_events(size_t n) {
    recorded.resize(n);
    reached.resize(n);
    at.resize(n);
    return true;
}

void two_lanes::record(rkv::stream_lane lane, size_t event) {
    recorded[event]++;
    at[event] = known[lane];
    lanes[lane].push_back({ [this, event] { reached[event]++; }, 0, 0 });
    go_on_some();
}

// As on a card: for what was given to be recorded so far, and for nothing when that is nothing.
void two_lanes::wait(rkv::stream_lane lane, size_t event) {
    for (int l = 0; l < 2; ++l) {
        known[lane][l] = std::max(known[lane][l], at[event][l]);
    }
    lanes[lane].push_back({ nullptr, event, recorded[event] });
    go_on_some();
}

static void move_rows(char * dst, const rkv::ring_rows & rows) {
    for (size_t r = 0; r < rows.rows; ++r) {
        memcpy(dst + r*rows.width, rows.src + r*rows.stride, rows.width);
    }
}

void two_lanes::copy(char * dst, const rkv::ring_rows & rows) {
    log.push_back({ false, dst, rows, known[STREAM_COPY] });
    give(STREAM_COPY, [=] { move_rows(dst, rows); });
}

void two_lanes::pull(char * dst, const rkv::ring_rows & rows) {
    log.push_back({ true, dst, rows, known[STREAM_COMPUTE] });
    give(STREAM_COMPUTE, [=] { move_rows(dst, rows); });
}

void two_lanes::tiles(const rkv::attn_tiles & a, int n_tiles) {
    give(STREAM_COMPUTE, [=] { host.tiles(a, n_tiles); });
}

void two_lanes::merge(const rkv::merge_tiles & a) {
    give(STREAM_COMPUTE, [=] { host.merge(a); });
}

void two_lanes::copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) {
    give(STREAM_COMPUTE, [=] { host.copy(dst, width, src, stride, rows); });
}

void two_lanes::convert(const rkv::convert_rows & a) {
    give(STREAM_COMPUTE, [=] { host.convert(a); });
}

void two_lanes::zero(char * dst, size_t bytes) {
    give(STREAM_COMPUTE, [=] { host.zero(dst, bytes); });
}

void two_lanes::give(rkv::stream_lane lane, std::function<void()> work) {
    known[lane][lane]++;
    lanes[lane].push_back({ std::move(work), 0, 0 });
    go_on_some();
}

// Carries out the lane's next thing, if it can be.
bool two_lanes::go_on(int lane) {
    if (lanes[lane].empty()) {
        return false;
    }
    given & next = lanes[lane].front();
    if (!next.work) {
        if (reached[next.event] < next.records) {
            return false;
        }
        lanes[lane].pop_front();
        return true;
    }
    const std::function<void()> work = std::move(next.work);
    lanes[lane].pop_front();
    work();
    return true;
}

void two_lanes::go_on_some() {
    switch (p) {
        case pace::copies_first:
            while (go_on(STREAM_COPY)) {}
            if (rng()%4 == 0) {
                go_on(STREAM_COMPUTE);
            }
            break;
        case pace::copies_last:
            while (go_on(STREAM_COMPUTE)) {}
            break;
        case pace::random:
            for (int n = int(rng()%4); n > 0; --n) {
                go_on(int(rng()%2));
            }
            break;
    }
}

void two_lanes::finish(rkv::stream_lane lane) {
    while (!lanes[lane].empty()) {
        if (!go_on(lane) && !go_on(1 - lane)) {
            stuck = true;
            lanes[0].clear();
            lanes[1].clear();
        }
    }
}

void two_lanes::synchronize() {
    finish(STREAM_COMPUTE);
    finish(STREAM_COPY);
}
