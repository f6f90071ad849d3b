#include "sim-host.h"

#include "sim-carrier.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace rkv_sim {

// Partials of so many tiles come up together.
static constexpr size_t UP_TILES = 8;

// A tensor of the same shape whose bytes lie in `bytes`, densely.
static ggml_tensor dense(const ggml_tensor * t, std::vector<char> & bytes) {
    ggml_tensor copy = *t;
    copy.nb[1] = ggml_row_size(t->type, t->ne[0]);
    copy.nb[2] = copy.nb[1]*t->ne[1];
    copy.nb[3] = copy.nb[2]*t->ne[2];
    bytes.resize(copy.nb[3]*t->ne[3]);
    copy.data = bytes.data();
    return copy;
}

static void fetch(const ggml_tensor * from, const ggml_tensor & to) {
    for (int64_t i3 = 0; i3 < to.ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < to.ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < to.ne[1]; ++i1) {
                memcpy((char *) to.data + i1*to.nb[1] + i2*to.nb[2] + i3*to.nb[3],
                        (const char *) from->data + i1*from->nb[1] + i2*from->nb[2] + i3*from->nb[3], to.nb[1]);
            }
        }
    }
}

//
// one node
//

host_mask::host_mask(const ggml_tensor * from) : from(from), tensor(dense(from, bytes)) {}

host_work::host_work(host_side & owner, const ggml_tensor * source, std::vector<rkv_host_tile> list, host_masks & masks)
    : owner(owner), tiles(std::move(list)), node(*source), from_query(source->src[0]), query(dense(from_query, query_bytes)) {
    node.src[0] = &query;
    if (const ggml_tensor * from = source->src[3]) {
        const auto known = std::find_if(masks.begin(), masks.end(), [&](const auto & m) { return m->from == from; });
        brings_mask = known == masks.end();
        mask        = brings_mask ? masks.emplace_back(std::make_shared<host_mask>(from)) : *known;
        node.src[3] = &mask->tensor;
    }
    const ggml_tensor * k_tail = node.src[RKV_ATTN_SRC_K_TAIL];
    const ggml_tensor * k      = k_tail ? k_tail : node.src[1];
    const ggml_tensor * v      = k_tail ? node.src[RKV_ATTN_SRC_V_TAIL] : node.src[2];
    const bool          within = v->view_src && v->view_src == k->view_src;
    const uint64_t      cell   = k->ne[2]*(ggml_row_size(k->type, k->ne[0]) + (within ? 0 : ggml_row_size(v->type, v->ne[0])));
    const int64_t       n_kv   = node.src[1]->ne[1] + (k_tail ? k_tail->ne[1] : 0);
    const int64_t       size   = node.op_params[RKV_OP_PARAM_TILE];
    for (const rkv_host_tile & t : tiles) {
        bytes.push_back(cell*uint64_t(std::min(size, n_kv - t.tile*size)));
    }
    there.resize(tiles.size());
    taken.reset(new std::atomic<bool>[tiles.size()]());
    job = owner.api->job_new(owner.engine, &node, tiles.data(), tiles.size());
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
    return uint64_t(query.ne[1]*query.ne[2])*(node.ne[0] + 2)*sizeof(float);
}

uint64_t host_work::all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
}

//
// all of them
//

host_side::host_side(device & d, device_clock & clock, uint64_t seed) : d(d), clock(clock), lane("rkv-sim-host", true, seed + 3, d.cfg.delay_s) {
    ggml_backend_dev_t cpu = cpu_device();
    ggml_backend_reg_t reg = cpu ? ggml_backend_dev_backend_reg(cpu) : nullptr;
    const auto         get = reg ? (const rkv_host_engine_api * (*)()) ggml_backend_reg_get_proc_address(reg, RKV_HOST_ENGINE_PROC) : nullptr;
    api = get ? get() : nullptr;
}

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
    api->job_start(w.job);
    reckoned now = std::max(free_at, clock.at() + seconds(d.cfg.latency_s + double(w.down_bytes())/d.cfg.link_bytes_s));
    for (size_t i = 0; i < w.tiles.size(); ++i) {
        const reckoned took = seconds(double(w.bytes[i])/d.cfg.host_bytes_s);
        now += took;
        w.there[i] = now;
        sums.busy_ns += uint64_t(took.count());
    }
    free_at = now;
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
