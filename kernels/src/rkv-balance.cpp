#include "rkv-balance.h"

#include "rkv-planner.h"

#include <algorithm>
#include <cmath>

namespace rkv {

// A split is kept until another one moves so much of the tail: a change discards what was copied ahead.
static constexpr double HYSTERESIS = 0.02;

// Weight of the newest step in what was measured.
static constexpr double NEWEST = 0.25;

// Attention that waits for the link for more than this part of a step is taken to keep it busy throughout.
static constexpr double BUSY_WAIT = 0.05;

// A step counts as at most so many times what steps took before: one after which a person thought for a minute is no measure.
static constexpr double LONGEST = 2.0;

// The host's share before anything is known.
static constexpr double FIRST_SHARE = 0.5;

tail_balance::tail_balance(rkv_tail_engine engine, double link_bytes_s) : engine(engine), link_s(link_bytes_s) {
    share = engine == RKV_TAIL_ENGINE_HOST ? 1.0 : 0.0;
}

static void blend(double & known, double now) {
    known = known > 0 ? known + NEWEST*(std::min(now, LONGEST*known) - known) : now;
}

void tail_balance::measured(const balance_step & s) {
    std::lock_guard<std::mutex> lock(mutex);
    blend(compute_s, std::max(s.step_s - s.link_wait_s - s.host_wait_s, 1e-9));
    if (s.host_bytes > 0 && s.host_busy_s > 0) {
        blend(host_s, double(s.host_bytes)/s.host_busy_s);
    }
    if (s.link_wait_s > BUSY_WAIT*s.step_s && s.link_bytes > 0) {
        blend(link_s, double(s.link_bytes)/s.step_s);
    }
}

// The host's share of a tail.
double tail_balance::wanted(double tail_bytes) const {
    switch (engine) {
        case RKV_TAIL_ENGINE_STREAM: return 0.0;
        case RKV_TAIL_ENGINE_HOST:   return 1.0;
        default: break;
    }
    if (compute_s < 0 || tail_bytes <= 0) {
        return FIRST_SHARE;
    }
    // A host of which nothing is known yet is taken to be as fast as the link.
    return best_host_share(tail_bytes, compute_s, link_s, host_s > 0 ? host_s : link_s);
}

std::vector<uint32_t> tail_balance::split(const std::vector<balance_item> & items) {
    std::lock_guard<std::mutex> lock(mutex);
    double bytes = 0;
    for (const balance_item & item : items) {
        bytes += double(item.bytes);
    }
    const double now  = wanted(bytes);
    const bool   kept = ring.size() == items.size() && std::abs(now - share) < HYSTERESIS && (now == 0) == (share == 0);
    if (kept) {
        return ring;
    }
    n_change += ring.size() == items.size();
    share = now;
    ring.assign(items.size(), ALL);
    if (share > 0) {
        double given = 0;
        for (size_t i = 0; i < items.size(); ++i) {
            const double before = std::floor(given);
            given  += (1 - share)*items[i].tiles;
            ring[i] = uint32_t(std::floor(given) - before);
        }
    }
    return ring;
}

double tail_balance::host_bytes_s() const {
    std::lock_guard<std::mutex> lock(mutex);
    return host_s;
}

double tail_balance::host_share() const {
    std::lock_guard<std::mutex> lock(mutex);
    return share;
}

uint64_t tail_balance::changes() const {
    std::lock_guard<std::mutex> lock(mutex);
    return n_change;
}

} // namespace rkv
