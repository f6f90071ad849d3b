#include "sim-staging.h"

#include "rkv-ring-fault.h"
#include "rkv-totals.h"

#include "ggml-impl.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace rkv_sim {

using rkv::ring_copy;
using rkv::ring_part;
using rkv::ring_rows;

//
// slots
//

staging::slots::slots(device & d, device_clock & clock, const rkv_staging_params & params, size_t slot_bytes, uint32_t depth, uint64_t seed)
    : d(d), slot_bytes(slot_bytes), depth(depth), own(rkv_fault_get() != RKV_FAULT_RING_OWNER || !d.first_slots.load()),
      address(!own ? d.first_slots.load() : d.mem.fails() ? nullptr : d.mem.alloc(slot_bytes*depth)),
      ring(params.schedule == RKV_SCHEDULE_OP ? rkv::ring_schedule::op : rkv::ring_schedule::ring, depth, rkv::ring_fault_now()) {
    if (!address) {
        throw std::bad_alloc();
    }
    void * none = nullptr;
    d.first_slots.compare_exchange_strong(none, address);
    copies = d.cfg.by_clock ? carry_by_clock(d, clock) : carry_in_time(d, seed);
}

staging::slots::~slots() {
    copies.reset();
    if (own) {
        void * mine = address;
        d.first_slots.compare_exchange_strong(mine, nullptr);
        d.mem.free(address);
    }
}

char * staging::slots::slot(uint64_t seq) const {
    return (char *) d.mem.bytes_of(address) + seq % depth*slot_bytes;
}

//
// what the nodes call
//

struct feed_calls {
    static node_feed & of(void * user) { return *(node_feed *) user; }

    static void begin(void * user) {
        node_feed & n = of(user);
        staging & owner = *n.owner;
        if (owner.ring) {
            owner.ring->copies->begun(n.number + 1);
        }
        owner.clock.pass(n.base);
        if (n.host) {
            owner.host.begin(*n.host);
        }
    }

    static int place(const node_feed & n, int stream, int tile) { return stream*n.n_tile + tile; }
    static int index(const node_feed & n, int stream, int tile) { return n.index[place(n, stream, tile)]; }

    static void enter(node_feed & n, int stream, int tile) {
        if (n.order) {
            n.order->enter(place(n, stream, tile));
        }
    }
    static void leave(node_feed & n, int stream, int tile, int nth) {
        if (n.order) {
            n.order->leave(place(n, stream, tile), nth);
        }
    }

    static bool brings(void * user, int stream, int tile) { return index(of(user), stream, tile) >= 0; }
    static bool by_host(void * user, int stream, int tile) { return index(of(user), stream, tile) < rkv::NOT_BROUGHT; }

    static void partials(void * user, int stream, int tile, int nth, rkv_tile_partials * partials) {
        node_feed & n = of(user);
        staging & owner = *n.owner;
        enter(n, stream, tile);
        owner.host.wait(*n.host, size_t(rkv::host_tile(index(n, stream, tile))), owner.ring ? owner.ring->copies.get() : nullptr, *partials);
        leave(n, stream, tile, nth);
    }

    static void acquire(void * user, int stream, int tile, rkv_fed_tile * fed) {
        node_feed & n = of(user);
        const int   i = index(n, stream, tile);
        const auto & use = n.step->uses[i];
        auto & ring = *n.owner->ring;

        enter(n, stream, tile);
        const uint64_t waited = ring.copies->wait(use);
        if (waited && !n.step->waited[i].exchange(true)) {
            n.owner->stalls++;
            n.owner->stall_ns += waited;
        }
        const slot_layout & at   = n.step->layouts[i];
        const ring_part &   all  = n.step->tiles[i].all;
        const size_t        row0 = size_t(tile - at.tile0)*at.cells;
        if (ring.d.cfg.alias) {
            const ring_rows & v = at.v_within_k ? all.k : all.v;
            *fed = { all.k.src + row0*all.k.stride, v.src + (at.v_within_k ? at.v_offset : 0) + row0*v.stride, all.k.stride, v.stride };
            return;
        }
        const char * slot = ring.slot(use.seq);
        *fed = { slot + row0*at.k_width, slot + at.v_offset + row0*at.v_width, at.k_width, at.v_width };
    }

    static void release(void * user, int stream, int tile, int nth) {
        node_feed & n = of(user);
        const int   i = index(n, stream, tile);
        if (++n.step->released[i] == nth*n.step->layouts[i].n_tile) {
            staging & owner = *n.owner;
            owner.clock.pass(owner.d.cost.of_bytes(n.step->tiles[i].all.bytes()));
            owner.ring->copies->released(n.step->uses[i].released);
        }
        leave(n, stream, tile, nth);
    }
};

//
// planning
//

staging::staging(device & d, device_clock & clock, uint64_t seed, std::function<void()> settle)
    : d(d), clock(clock), seed(seed), settle(std::move(settle)), host(d, clock, seed) {}
staging::~staging() = default;

bool staging::prepare(const rkv_staging_params & p, const rkv_staging_need & n) {
    params = p;
    if (n.cells_all == 0) {
        return true;
    }
    link = d.measured_link();
    host.use(n.host);
    if (!n.host) {
        if (p.engine == RKV_TAIL_ENGINE_HOST || p.engine == RKV_TAIL_ENGINE_HYBRID) {
            GGML_LOG_ERROR("%s: the CPU backend has no host engine\n", d.name.c_str());
            return false;
        }
        params.engine = RKV_TAIL_ENGINE_STREAM;
    }
    balance = std::make_unique<rkv::tail_balance>(params.engine, link.bytes_s);
    plan = rkv::plan_staging(p, n, d.mem.total() - d.mem.used() + (ring ? ring->bytes() : 0), link);
    try {
        need(plan.slot_bytes);
    } catch (const std::bad_alloc &) {
        return false;
    }
    return true;
}

// Slots of at least so many bytes.
void staging::need(size_t slot_bytes) {
    if (ring && ring->slot_bytes >= slot_bytes && ring->depth == plan.depth) {
        return;
    }
    settle();
    before = totals();
    ring.reset();
    ring = std::make_unique<slots>(d, clock, params, slot_bytes, plan.depth, seed);
}

// Which tiles of which node go where.
void staging::collect(graph_copy & graph, step_feeds & step, int n_threads) {
    std::vector<rkv::balance_item> items;
    step.few_queries = true;
    for (const auto & pair : graph.tiled()) {
        count_node(d, pair.source, items);
        step.few_queries = step.few_queries && host_may(pair.source);
    }
    const std::vector<uint32_t> all(items.size(), rkv::tail_balance::ALL);
    const std::vector<uint32_t> split = step.few_queries && balance ? balance->split(items) : all;

    const uint32_t * ring = split.data();
    for (const auto & pair : graph.tiled()) {
        std::vector<rkv_host_tile>     tiles;
        std::vector<rkv::balance_item> own;
        count_node(d, pair.source, own);
        const size_t before = step.nodes.size();
        collect_node(d, pair, plan.copy_cells, ring, step, tiles);
        ring += own.size();
        if (step.nodes.size() > before && !tiles.empty()) {
            step.nodes.back().host = host.plan(pair.copy, std::move(tiles), step.masks, params.host_threads ? int(params.host_threads) : n_threads);
        }
    }
}

// A step of which the host attends to every tile is told to the ring too: it writes rows.
void staging::give_copies(step_feeds & step) {
    size_t slot_bytes = 0;
    for (const auto & layout : step.layouts) {
        slot_bytes = std::max(slot_bytes, layout.bytes);
    }
    if (slot_bytes > 0) {
        need(slot_bytes);
    }
    if (!ring) {
        return;
    }
    const rkv::ring_plan order = ring->ring.begin(step.tiles, uint32_t(step.nodes.size()), d.tail_writes.load());
    step.uses      = order.uses;
    step.discarded = order.discarded;
    step.released.reset(new std::atomic<int>[step.tiles.size()]());
    step.waited.reset(new std::atomic<bool>[step.tiles.size()]());
    for (const ring_copy & copy : order.copies) {
        step.link_bytes += copy.part.bytes();
        ring->copies->give({ copy, ring->slot(copy.seq), step.layouts[copy.index].v_offset });
    }
    for (size_t i = 0; i < step.nodes.size(); ++i) {
        step.nodes[i].number = order.first_node + i;
    }
}

std::shared_ptr<step_feeds> staging::begin(graph_copy & graph, int n_threads) {
    auto step = std::make_shared<step_feeds>();
    collect(graph, *step, n_threads);
    if (step->nodes.empty()) {
        return nullptr;
    }
    give_copies(*step);
    for (node_feed & n : step->nodes) {
        n.owner = this;
        if (d.cfg.by_clock) {
            n.order = std::make_unique<turns>();
        }
        n.feed  = { &n, feed_calls::begin, feed_calls::brings, feed_calls::acquire, feed_calls::release, feed_calls::by_host, feed_calls::partials };
        const rkv_tile_feed * feed = &n.feed;
        memcpy(n.node->op_params + RKV_OP_PARAM_FEED, &feed, sizeof(feed));
    }
    return step;
}

// The last step ends where this one begins. Only steps of few queries, one after the other, say how the tail is best shared.
void staging::measure(const step_feeds & step) {
    const host_totals & h = host.totals();
    mark now;
    now.few_queries = step.few_queries;
    now.at          = d.cfg.by_clock ? clock.at() : std::chrono::duration_cast<reckoned>(std::chrono::steady_clock::now().time_since_epoch());
    now.stall_ns    = stall_ns;
    now.wait_ns     = h.wait_ns;
    now.busy_ns     = h.busy_ns;
    now.link_bytes  = step.link_bytes;
    for (const node_feed & n : step.nodes) {
        now.host_bytes += n.host ? n.host->all_bytes() : 0;
    }
    host_steps += now.host_bytes > 0;
    if (last.few_queries && now.few_queries && balance) {
        balance->measured({ double((now.at - last.at).count())*1e-9, double(now.stall_ns - last.stall_ns)*1e-9, double(now.wait_ns - last.wait_ns)*1e-9,
            last.link_bytes, last.host_bytes, double(now.busy_ns - last.busy_ns)*1e-9 });
    }
    last = now;
}

void staging::start(const step_feeds & step) {
    if (step.discarded) {
        ring->copies->released(step.discarded);
    }
    measure(step);
}

rkv_staging_totals staging::totals() const {
    rkv_staging_totals t = before;
    t.link_bytes_s   = link.bytes_s;
    t.link_latency_s = link.latency_s;
    t.copy_cells     = plan.copy_cells;
    if (ring) {
        t.depth        = ring->depth;
        t.slot_bytes   = ring->slot_bytes;
        t.device_bytes = ring->bytes();
        rkv::add_ring(t, ring->ring.totals());
    }
    t.stalls    = stalls;
    t.stall_ns  = stall_ns;
    t.device_ns = uint64_t(clock.at().count());
    rkv::set_host(t, host.totals(), host_steps, balance.get());
    return t;
}

} // namespace rkv_sim
