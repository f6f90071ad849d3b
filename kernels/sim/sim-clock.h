#pragma once

// A device's reckoned time: what its nodes, and the transfers of its link, take by set costs. It passes whatever this machine does
// meanwhile, so that schedules can be compared on one whose own speed varies.

#include "ggml.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rkv_sim {

using reckoned = std::chrono::nanoseconds;

inline reckoned seconds(double s) {
    return reckoned(int64_t(s*1e9));
}

// What nodes take.
class costs {
public:
    // `launch_s`: of a node that computes, in seconds; `bytes_s`: bandwidth of the device's memory in bytes per second, 0: without end.
    costs(double launch_s, double bytes_s) : launch_s(launch_s), bytes_s(bytes_s) {}

    reckoned of_bytes(uint64_t bytes) const { return bytes_s > 0 ? seconds(double(bytes)/bytes_s) : reckoned(0); }
    // A launch and the bytes that are read and written, without those in `fed`, which a feed accounts for.
    reckoned of_node(const ggml_tensor * node, uint64_t fed) const;

private:
    double launch_s;
    double bytes_s;
};

// When the device is done with what it was given so far.
class device_clock {
public:
    reckoned at() const { return reckoned(now.load(std::memory_order_acquire)); }
    // Nothing more was done before `t`.
    void     from(reckoned t);
    void     pass(reckoned d) { now.fetch_add(d.count(), std::memory_order_acq_rel); }

private:
    std::atomic<reckoned::rep> now{ 0 };
};

} // namespace rkv_sim
