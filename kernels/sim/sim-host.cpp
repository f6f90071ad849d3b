#include "sim-host.h"

#include "sim-carrier.h"

#include "rkv-host-node.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace rkv_sim {

// Partials of so many tiles come up together.
static constexpr size_t UP_TILES = 8;

static void fetch(const ggml_tensor * from, const ggml_tensor & to) {
    for (const rkv::dense_run & run : rkv::dense_runs(from)) {
        for (size_t row = 0; row < run.rows; ++row) {
            memcpy((char *) to.data + run.to + row*run.width, (const char *) from->data + run.from + row*run.stride, run.width);
        }
    }
}

//
// one node
//

host_mask::host_mask(const ggml_tensor * from) : from(from), bytes(rkv::dense_bytes(from)), tensor(rkv::dense_like(from, bytes.data())) {}

host_work::host_work(host_side & owner, const ggml_tensor * source, std::vector<rkv_host_tile> list, host_masks & masks)
    : owner(owner), tiles(std::move(list)), node(*source), from_query(source->src[0]), query_bytes(rkv::dense_bytes(from_query)),
      query(rkv::dense_like(from_query, query_bytes.data())) {
    node.src[0] = &query;
    if (const ggml_tensor * from = source->src[3]) {
        const auto known = std::find_if(masks.begin(), masks.end(), [&](const auto & m) { return m->from == from; });
        brings_mask = known == masks.end();
        mask        = brings_mask ? masks.emplace_back(std::make_shared<host_mask>(from)) : *known;
        node.src[3] = &mask->tensor;
    }
    bytes = rkv::host_tile_bytes(&node, tiles);
    there.resize(tiles.size());
    taken.reset(new std::atomic<bool>[tiles.size()]());
    job = owner.api->job_new(owner.engine, &node, tiles.data(), tiles.size(), nullptr);
    if (!job) {
        throw std::bad_alloc();
    }
}

host_work::~host_work() {
    if (!owner.d.cfg.by_clock) {
        owner.lane.drain();
    }
    owner.api->job_free(job);
}

uint64_t host_work::up_bytes() const {
    return rkv::host_partial_bytes(&node);
}

uint64_t host_work::all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
}

//
// all of them
//

host_side::host_side(device & d, device_clock & clock, uint64_t seed) : d(d), clock(clock), lane("rkv-sim-host", true, seed + 3, d.cfg.delay_s) {}

host_side::~host_side() {
    lane.drain();
    if (engine) {
        api->destroy(engine);
    }
}

static void fetch_inputs(host_work & w) {
    fetch(w.from_query, w.query);
    if (w.brings_mask) {
        fetch(w.mask->from, w.mask->tensor);
    }
}

std::unique_ptr<host_work> host_side::plan(const ggml_tensor * node, std::vector<rkv_host_tile> tiles, host_masks & masks, int n_threads) {
    if (!engine) {
        engine = api->create(n_threads);
        if (!engine) {
            throw std::bad_alloc();
        }
    }
    auto w = std::make_unique<host_work>(*this, node, std::move(tiles), masks);
    sums.tiles += w->tiles.size();
    sums.bytes += w->all_bytes();
    sums.down += w->down_bytes();
    sums.up   += w->up_bytes()*w->tiles.size();
    if (rkv_fault_get() == RKV_FAULT_HOST_EARLY) {
        fetch_inputs(*w);
    }
    return w;
}

void host_side::begin(host_work & w) {
    if (d.cfg.by_clock) {
        begin_by_clock(w);
    } else {
        begin_in_time(w);
    }
}

static void fetch_begun(host_work & w) {
    if (rkv_fault_get() != RKV_FAULT_HOST_EARLY) {
        fetch_inputs(w);
    }
}

// On a thread of its own, after its random delay.
void host_side::begin_in_time(host_work & w) {
    lane.push([this, &w] {
        d.to_host.transfer(w.down_bytes(), [&w] { fetch_begun(w); }, true);
        api->job_start(w.job);
        for (size_t i = 0; i < w.tiles.size();) {
            const size_t end = std::min(i + UP_TILES, w.tiles.size());
            rkv_tile_partials none;
            for (size_t t = i; t < end; ++t) {
                api->job_wait(w.job, t, true, &none);
            }
            d.to_device.transfer(w.up_bytes()*(end - i), [] {}, true);
            w.up.signal(end);
            i = end;
        }
        sums.busy_ns += api->job_ns(w.job);
    });
}

void host_side::begin_by_clock(host_work & w) {
    d.to_host.count(w.down_bytes());
    fetch_begun(w);
    reckoned now = std::max(free_at, clock.at() + seconds(d.cfg.latency_s + double(w.down_bytes())/d.cfg.link_bytes_s));
    for (size_t i = 0; i < w.tiles.size(); ++i) {
        const reckoned took = seconds(double(w.bytes[i])/d.cfg.host_bytes_s);
        now += took;
        w.there[i] = now;
        sums.busy_ns += uint64_t(took.count());
    }
    free_at = now;
    api->job_start(w.job); // last: other threads of the node wait for the job, and then read the times
}

void host_side::wait(host_work & w, size_t tile, carrier * link, rkv_tile_partials & partials) {
    const bool     waits  = rkv_fault_get() != RKV_FAULT_HOST_UNWAITED;
    const uint64_t waited = waits && !d.cfg.by_clock ? w.up.wait(tile + 1) : 0;
    api->job_wait(w.job, tile, waits, &partials);
    if (w.taken[tile].exchange(true)) {
        return;
    }
    sums.wait_ns += d.cfg.by_clock ? pass(w, tile, link) : waited;
}

// The device reads the partials over its link, while the host goes on; only the first ones show the latency.
uint64_t host_side::pass(const host_work & w, size_t tile, carrier * link) {
    const reckoned from = clock.at();
    clock.from(w.there[tile]);
    clock.pass(seconds((tile == 0 ? d.cfg.latency_s : 0) + double(w.up_bytes())/d.cfg.link_bytes_s));
    d.to_device.count(w.up_bytes());
    if (link) {
        link->shared(w.up_bytes());
    }
    return uint64_t((clock.at() - from).count());
}

} // namespace rkv_sim
