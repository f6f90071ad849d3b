#include "sim-carrier.h"
#include "sim-queue.h"

#include <cstring>

namespace rkv_sim {

using rkv::RING_AHEAD;
using rkv::RING_LANES;
using rkv::RING_LATE;

// Rows one behind the other, from row `row0` of a part of the slot on.
static void pack_rows(char * part, size_t row0, const rkv::ring_rows & rows) {
    char * dst = part + row0*rows.width;
    if (rows.stride == rows.width) {
        memcpy(dst, rows.src, rows.bytes());
        return;
    }
    for (size_t r = 0; r < rows.rows; ++r) {
        memcpy(dst + r*rows.width, rows.src + r*rows.stride, rows.width);
    }
}

void pack(const device & d, const carried & c) {
    if (!d.cfg.alias) {
        pack_rows(c.slot, c.copy.row0, c.copy.part.k);
        pack_rows(c.slot + c.v_offset, c.copy.row0, c.copy.part.v);
    }
}

namespace {

class lanes : public carrier {
public:
    lanes(device & d, uint64_t seed)
        : d(d), lane_ahead("rkv-sim-ahead", true, seed + 1, d.cfg.delay_s), lane_late("rkv-sim-late", true, seed + 2, d.cfg.delay_s) {}

    ~lanes() override {
        // Copies that were given ahead wait for readers that will not come, and the tails that they read may be gone.
        ends = true;
        nodes.signal(UINT64_MAX);
        tiles.signal(UINT64_MAX);
        lane_ahead.drain();
        lane_late.drain();
        copied[RING_AHEAD].join(n_given[RING_AHEAD]);
        copied[RING_LATE].join(n_given[RING_LATE]);
    }

    void give(const carried & c) override {
        n_given[c.copy.lane] = c.copy.number + 1;
        queue & lane = c.copy.lane == RING_AHEAD ? lane_ahead : lane_late;
        lane.push([this, c] {
            nodes.wait(c.copy.after_begun);
            tiles.wait(c.copy.after_released);
            copied[RING_AHEAD].wait(c.copy.after_ahead);
            if (ends) {
                copied[c.copy.lane].signal(c.copy.number + 1);
                return;
            }
            d.to_device.submit(c.copy.part.bytes(), c.copy.lane == RING_LATE, [this, c] { pack(d, c); },
                    [this, c] { copied[c.copy.lane].signal(c.copy.number + 1); });
        });
    }

    void begun(uint64_t n) override { nodes.signal(n); }
    void released(uint64_t n) override { tiles.signal(n); }

    uint64_t wait(const rkv::ring_use & use) override {
        return copied[RING_AHEAD].wait(use.copied[RING_AHEAD]) + copied[RING_LATE].wait(use.copied[RING_LATE]);
    }

private:
    device & d;
    timeline nodes;
    timeline tiles;
    timeline copied[RING_LANES];
    std::atomic<bool> ends{ false };
    uint64_t n_given[RING_LANES] = {};
    queue    lane_ahead;
    queue    lane_late;
};

} // namespace

std::unique_ptr<carrier> carry_in_time(device & d, uint64_t seed) {
    return std::make_unique<lanes>(d, seed);
}

} // namespace rkv_sim
