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

// Of the host's memory, what is left to its kernel where the link could take all.
constexpr double LEFT_MIN = 0.05;

// Parts of the host's memory that the link may be held to.
constexpr int LINK_PARTS = 8;

// A longer tail is played through in longer copies: what one copy more or less moves is then less than a thousandth.
constexpr double COPIES_MAX = 256;

class walk {
public:
    // `link`: bytes per second that the ring asks of it, 0: without end.
    walk(const step_model & step, double host_share, double link) : step(step), host_share(host_share), link(link) {
        const double memory = step.memory_bytes_s;
        if (memory > 0 && host_share > 0 && host_share < 1) {
            host_least_s_byte = 1/std::max(memory - link, LEFT_MIN*memory);
        }
    }

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
    const double        link;                  // bytes per second, 0: without end
    double              host_least_s_byte = 0; // by the host's memory, while the link reads it too
    double              now       = 0;
    double              link_free = 0;
    std::vector<double> released; // when the reader of each copy gave its slot back

    double over_link(double bytes) const { return link > 0 ? bytes/link : 0; }

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
            const double ended = asked + by_host*std::max(l.host_s_byte, host_least_s_byte);
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
    const double memory = step.memory_bytes_s;
    const double link   = memory > 0 && (step.link_bytes_s == 0 || step.link_bytes_s > memory) ? memory : step.link_bytes_s;
    double least = walk(step, host_share, link).run();
    if (memory > 0 && host_share > 0 && host_share < 1) {
        // A link that could take all of the host's memory need not: the host may read what it leaves.
        for (int i = 1; i < LINK_PARTS; ++i) {
            const double part = memory*i/LINK_PARTS;
            if (part < link) {
                least = std::min(least, walk(step, host_share, part).run());
            }
        }
    }
    return least;
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
