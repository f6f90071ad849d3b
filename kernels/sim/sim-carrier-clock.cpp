#include "sim-carrier.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace rkv_sim {

using rkv::RING_AHEAD;
using rkv::RING_LANES;
using rkv::RING_LATE;

namespace {

// When a counter that only grows reached its values.
class history {
public:
    void note(uint64_t value, reckoned at) {
        if (past.empty() || value > past.back().value) {
            past.push_back({ value, at });
        }
        if (past.size() > REMEMBERED) {
            past.pop_front();
        }
    }
    bool     reached(uint64_t value) const { return value == 0 || (!past.empty() && past.back().value >= value); }
    reckoned at(uint64_t value) const {
        const auto it = std::lower_bound(past.begin(), past.end(), value, [](const entry & e, uint64_t v) { return e.value < v; });
        return value == 0 || it == past.end() ? reckoned(0) : it->at;
    }

private:
    // More than a step has.
    static constexpr size_t REMEMBERED = 1 << 14;

    struct entry {
        uint64_t value;
        reckoned at;
    };
    std::deque<entry> past;
};

// The link as a list of what it does next. While the compute thread waits nothing else can happen, so what the link does until
// the tile is there follows from what has happened so far; so nothing depends on when a thread of this machine runs.
class reckoning : public carrier {
public:
    reckoning(device & d, device_clock & clock) : d(d), clock(clock) {}

    ~reckoning() override = default; // a copy that was not carried out yet has no reader

    void give(const carried & c) override {
        std::lock_guard<std::mutex> lock(mutex);
        waiting[c.copy.lane].push_back({ c, clock.at() });
    }

    void begun(uint64_t n) override {
        std::lock_guard<std::mutex> lock(mutex);
        nodes.note(n, clock.at());
        changed.notify_all();
    }

    void released(uint64_t n) override {
        std::lock_guard<std::mutex> lock(mutex);
        // What the link does before a slot is free again must not read what a later step gives.
        carry_until([&] { return true; });
        tiles.note(n, clock.at());
        changed.notify_all();
    }

    void shared(uint64_t bytes) override {
        std::lock_guard<std::mutex> lock(mutex);
        carry_until([] { return true; });
        const reckoned took = seconds(double(bytes)/d.cfg.link_bytes_s);
        free_at = std::max(free_at, clock.at() - took) + took;
    }

    uint64_t wait(const rkv::ring_use & use) override {
        std::unique_lock<std::mutex> lock(mutex);
        const auto is_there = [&] {
            return copied[RING_AHEAD].reached(use.copied[RING_AHEAD]) && copied[RING_LATE].reached(use.copied[RING_LATE]);
        };
        // Another thread of the node may still have to give a slot back.
        while (carry_until(is_there), !is_there()) {
            changed.wait(lock);
        }
        const reckoned there = std::max(copied[RING_AHEAD].at(use.copied[RING_AHEAD]), copied[RING_LATE].at(use.copied[RING_LATE]));
        const reckoned from  = clock.at();
        clock.from(there);
        return there > from ? uint64_t((there - from).count()) : 0;
    }

private:
    struct pending {
        carried  c;
        reckoned given;
    };

    device &            d;
    device_clock &      clock;
    std::mutex              mutex;
    std::condition_variable changed;
    history             nodes;
    history             tiles;
    history             copied[RING_LANES];
    std::deque<pending> waiting[RING_LANES];
    reckoned            free_at{ 0 };

    // Whether the lane's next copy can start, and when.
    bool start_of(int lane, reckoned & start) const {
        if (waiting[lane].empty()) {
            return false;
        }
        const pending &        p = waiting[lane].front();
        const rkv::ring_copy & c = p.c.copy;
        if (!nodes.reached(c.after_begun) || !tiles.reached(c.after_released) || !copied[RING_AHEAD].reached(c.after_ahead)) {
            return false;
        }
        const reckoned ready = std::max({ p.given, nodes.at(c.after_begun), tiles.at(c.after_released), copied[RING_AHEAD].at(c.after_ahead) });
        start = std::max(free_at, ready + seconds(d.cfg.latency_s));
        return true;
    }

    // Everything that starts before now, and more until `enough` or until nothing can start.
    template <typename F> void carry_until(F && enough) {
        for (;;) {
            reckoned   start[RING_LANES];
            const bool ahead = start_of(RING_AHEAD, start[RING_AHEAD]);
            const bool late  = start_of(RING_LATE, start[RING_LATE]);
            if (!ahead && !late) {
                return;
            }
            // Late copies go first, as on the link's thread.
            const int lane = late && (!ahead || start[RING_LATE] <= start[RING_AHEAD]) ? RING_LATE : RING_AHEAD;
            if (start[lane] > clock.at() && enough()) {
                return;
            }
            const carried c = waiting[lane].front().c;
            waiting[lane].pop_front();
            free_at = start[lane] + seconds(double(c.copy.part.bytes())/d.cfg.link_bytes_s);
            d.to_device.count(c.copy.part.bytes());
            pack(d, c);
            copied[lane].note(c.copy.number + 1, free_at);
        }
    }
};

} // namespace

std::unique_ptr<carrier> carry_by_clock(device & d, device_clock & clock) {
    return std::make_unique<reckoning>(d, clock);
}

} // namespace rkv_sim
