#pragma once

// Which tiles of a tail a step brings to the device and which the host attends to.
//
// The link brings tiles during the whole step; the host works on a layer's tail only while that layer's attention waits for it. With the time
// C that a step computes, tail bytes T, the link's rate L and the host's rate H, both end together when the host has
// (T - L*C)/(1 + L/H) bytes, and the step takes (C + T/H)/(1 + L/H). C, L and H are measured as steps run. Of each layer the oldest tiles
// go by the link: they change seldom, so what was copied ahead stays right, and new rows are where the host reads them. No bit of the
// result depends on the split.

#include "rkv-step.h"

#include <cstdint>
#include <mutex>
#include <vector>

namespace rkv {

// A tail of one stream of one attention node.
struct balance_item {
    uint32_t tiles;
    uint64_t bytes; // K and V
};

// What a step took, from its begin to the next one's.
struct balance_step {
    double   step_s      = 0;
    double   link_wait_s = 0; // attention waited for copies
    double   host_wait_s = 0; // and for the host
    uint64_t link_bytes  = 0; // of all copies
    uint64_t host_bytes  = 0; // K and V that the host read
    double   host_busy_s = 0; // in which it did
};

class tail_balance {
public:
    // `link_bytes_s`: as it was measured, bytes per second.
    tail_balance(rkv_tail_engine engine, double link_bytes_s);

    // How many tiles of each item, from the first on, the link brings; ALL: every one, however long the tail gets.
    static constexpr uint32_t ALL = UINT32_MAX;
    std::vector<uint32_t> split(const std::vector<balance_item> & items);

    void measured(const balance_step & step);

    // Bytes per second that the host reads, and the host's share of the tail that was chosen last; 0 before they are known.
    double   host_bytes_s() const;
    double   host_share() const;
    // How often another split was chosen.
    uint64_t changes() const;

private:
    mutable std::mutex    mutex;
    const rkv_tail_engine engine;
    double                compute_s = -1; // unknown
    double                link_s;         // bytes per second
    double                host_s = 0;
    double                share  = 0;     // of the host
    uint64_t              n_change = 0;
    std::vector<uint32_t> ring;           // [items]

    double wanted(double tail_bytes) const;
};

} // namespace rkv
