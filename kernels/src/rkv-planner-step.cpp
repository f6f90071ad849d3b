#include "rkv-planner-step.h"

#include <algorithm>
#include <cmath>

namespace rkv {

namespace {

// Steps until the ring runs as it will go on.
constexpr int STEPS = 4;

// Shares that are tried: from none to all, and then more closely around the best of them.
constexpr int SHARES = 32;
constexpr int CLOSER = 16;

// A longer tail is played through in longer copies: what one copy more or less moves is then less than a thousandth.
constexpr double COPIES_MAX = 256;

class walk {
public:
    walk(const step_model & step, double host_share) : step(step), host_share(host_share) {}

    double run() {
        double began = 0;
        for (int i = 0; i < STEPS; ++i) {
            began = now;
            for (const step_layer & layer : step.layers) {
                now += step.node_s;
                attend(layer);
            }
        }
        return now - began;
    }

private:
    const step_model &  step;
    const double        host_share;
    double              now       = 0;
    double              link_free = 0;
    std::vector<double> released; // when the reader of each copy gave its slot back

    double over_link(double bytes) const { return step.link_bytes_s > 0 ? bytes/step.link_bytes_s : 0; }

    void attend(const step_layer & l) {
        const double begun   = now;
        const double by_host = l.tail_bytes*host_share;
        const double by_ring = l.tail_bytes - by_host;
        now += l.window_s;
        if (by_ring > 0) {
            stream(l, by_ring, begun);
        }
        if (by_host > 0) {
            const double tiles = std::ceil(by_host/std::max(l.tile_bytes, 1.0));
            const double asked = begun + step.latency_s + over_link(l.query_bytes);
            const double ended = asked + by_host*l.host_s_byte;
            link_free += over_link(tiles*l.partial_bytes);
            now = std::max(now, ended + step.latency_s + over_link(l.partial_bytes));
        }
    }

    // The layer's copies, each of which waits for a slot and for the link, and for which the layer waits.
    void stream(const step_layer & l, double bytes, double begun) {
        const double whole  = std::ceil(bytes/std::max(l.copy_bytes, 1.0));
        const int    copies = int(std::clamp(whole, 1.0, COPIES_MAX));
        const size_t slots  = std::max<size_t>(1, size_t(std::llround(step.slots*copies/whole)));
        for (int i = 0; i < copies; ++i) {
            const double of_copy  = bytes/copies;
            const double slot     = released.size() >= slots ? released[released.size() - slots] : 0;
            link_free = std::max(link_free, slot + (released.size() >= slots ? step.latency_s : 0)) + over_link(of_copy);
            double there = link_free;
            if (i + 1 == copies && l.row_bytes > 0) {
                // The row that the step itself writes goes once the layer has begun, before what waits.
                there = std::max(there, begun + step.latency_s + over_link(l.row_bytes));
            }
            now = std::max(now, there) + of_copy*l.device_s_byte;
            released.push_back(now);
        }
    }
};

} // namespace

double step_s(const step_model & step, double host_share) {
    double tail = 0;
    for (const step_layer & layer : step.layers) {
        tail += layer.tail_bytes;
    }
    // Whoever reads it, the tail is read from the host's memory.
    const double least = step.memory_bytes_s > 0 ? tail/step.memory_bytes_s : 0;
    return std::max(walk(step, host_share).run(), least);
}

double best_share(const step_model & step) {
    double best  = 0;
    double least = step_s(step, 0);
    const auto try_share = [&](double share) {
        const double took = step_s(step, share);
        if (took < least) {
            least = took;
            best  = share;
        }
    };
    for (int i = 1; i <= SHARES; ++i) {
        try_share(double(i)/SHARES);
    }
    const double around = best;
    for (int i = -CLOSER; i <= CLOSER; ++i) {
        try_share(std::clamp(around + double(i)/CLOSER/SHARES, 0.0, 1.0));
    }
    return best;
}

} // namespace rkv
