#include "sim-staging.h"

#include "ggml-impl.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace rkv_sim {

using rkv::ring_copy;
using rkv::ring_part;
using rkv::ring_rows;
using rkv::ring_tile;

static constexpr size_t SLOT_ALIGNMENT = 256;

// Slots that are chosen at most: enough to keep the link busy while the last layers and the output run, which read no tile.
static constexpr uint64_t DEPTH_MAX = 64;

static size_t aligned(size_t bytes) {
    return (bytes + SLOT_ALIGNMENT - 1)/SLOT_ALIGNMENT*SLOT_ALIGNMENT;
}

static rkv::ring_fault ring_fault_now() {
    switch (rkv_fault_get()) {
        case RKV_FAULT_RING_STALE:      return rkv::RING_FAULT_STALE;
        case RKV_FAULT_RING_REUSE:      return rkv::RING_FAULT_REUSE;
        case RKV_FAULT_RING_GENERATION: return rkv::RING_FAULT_GENERATION;
        default:                        return rkv::RING_FAULT_NONE;
    }
}

//
// slots and lanes
//

staging::slots::slots(device & d, const rkv_staging_params & params, size_t slot_bytes, uint32_t depth, uint64_t seed)
    : d(d), slot_bytes(slot_bytes), depth(depth), address(d.mem.fails() ? nullptr : d.mem.alloc(slot_bytes*depth)),
      ring(params.schedule == RKV_SCHEDULE_OP ? rkv::ring_schedule::op : rkv::ring_schedule::ring, depth, ring_fault_now()),
      lane_ahead(seed + 1, d.cfg.delay_s), lane_late(seed + 2, d.cfg.delay_s) {
    if (!address) {
        throw std::bad_alloc();
    }
}

staging::slots::~slots() {
    // Copies that were given ahead wait for readers that will not come.
    begun.signal(UINT64_MAX);
    released.signal(UINT64_MAX);
    lane_ahead.drain();
    lane_late.drain();
    copied[rkv::RING_AHEAD].join(given[rkv::RING_AHEAD]);
    copied[rkv::RING_LATE].join(given[rkv::RING_LATE]);
    d.mem.free(address);
}

char * staging::slots::slot(uint64_t seq) const {
    return (char *) d.mem.bytes_of(address) + seq % depth*slot_bytes;
}

// Rows one behind the other, from row `row0` of the slot on.
static void pack(char * slot, size_t row0, const ring_rows & rows) {
    char * dst = slot + row0*rows.width;
    if (rows.stride == rows.width) {
        memcpy(dst, rows.src, rows.bytes());
        return;
    }
    for (size_t r = 0; r < rows.rows; ++r) {
        memcpy(dst + r*rows.width, rows.src + r*rows.stride, rows.width);
    }
}

void staging::slots::give(const ring_copy & copy, size_t v_offset) {
    given[copy.lane] = copy.number + 1;
    queue & lane = copy.lane == rkv::RING_AHEAD ? lane_ahead : lane_late;
    lane.push([this, copy, v_offset] {
        begun.wait(copy.after_begun);
        released.wait(copy.after_released);
        copied[rkv::RING_AHEAD].wait(copy.after_ahead);
        char * dst = slot(copy.seq);
        d.to_device.submit(copy.part.bytes(), copy.lane == rkv::RING_LATE, [this, copy, v_offset, dst] {
            if (!d.cfg.alias) {
                pack(dst, copy.row0, copy.part.k);
                pack(dst + v_offset, copy.row0, copy.part.v);
            }
        }, [this, copy] { copied[copy.lane].signal(copy.number + 1); });
    });
}

//
// what the nodes call
//

struct feed_calls {
    static node_feed & of(void * user) { return *(node_feed *) user; }

    static void begin(void * user) {
        node_feed & n = of(user);
        n.owner->ring->begun.signal(n.number + 1);
    }

    static int index(const node_feed & n, int stream, int tile) { return n.index[size_t(stream)*n.n_tile + tile]; }

    static bool brings(void * user, int stream, int tile) { return index(of(user), stream, tile) >= 0; }

    static void acquire(void * user, int stream, int tile, rkv_fed_tile * fed) {
        node_feed & n = of(user);
        const int   i = index(n, stream, tile);
        const auto & use = n.step->uses[i];
        auto & ring = *n.owner->ring;

        const uint64_t waited = ring.copied[rkv::RING_AHEAD].wait(use.copied[rkv::RING_AHEAD]) +
                                ring.copied[rkv::RING_LATE].wait(use.copied[rkv::RING_LATE]);
        if (waited) {
            n.owner->stalls++;
            n.owner->stall_ns += waited;
        }
        const step_feeds::layout & at = n.step->layouts[i];
        const ring_part & all = n.step->tiles[i].all;
        if (ring.d.cfg.alias) {
            *fed = { all.k.src, all.v.rows ? all.v.src : all.k.src + at.v_offset, all.k.stride, all.v.rows ? all.v.stride : all.k.stride };
            return;
        }
        const char * slot = ring.slot(use.seq);
        *fed = { slot, slot + at.v_offset, at.k_width, at.v_width };
    }

    static void release(void * user, int stream, int tile, int nth) {
        node_feed & n = of(user);
        const int   i = index(n, stream, tile);
        if (++n.step->released[i] == nth) {
            n.owner->ring->released.signal(n.step->uses[i].released);
        }
    }
};

//
// planning
//

staging::staging(device & d, uint64_t seed, std::function<void()> settle) : d(d), seed(seed), settle(std::move(settle)) {}
staging::~staging() = default;

static const rkv_step * step_of(const ggml_tensor * node) {
    const rkv_step * step;
    memcpy(&step, node->op_params + RKV_OP_PARAM_STEP, sizeof(step));
    return step;
}

// Rows of cells [cell, cell + n) of a part, of one stream.
static ring_rows rows_of(const ggml_tensor * part, int64_t cell, int64_t n, int64_t stream) {
    ring_rows r;
    r.src    = (const char *) part->data + cell*part->nb[1] + stream*part->nb[3];
    r.width  = (part->ne[2] - 1)*part->nb[2] + ggml_row_size(part->type, part->ne[0]);
    r.stride = part->nb[1];
    r.rows   = size_t(n);
    return r;
}

// Whether V is a part of K's rows, as in an MLA cache.
static bool v_within_k(const ggml_tensor * k, const ggml_tensor * v) {
    const char * from = (const char *) k->data;
    const char * at   = (const char *) v->data;
    return at >= from && at < from + k->nb[1] && v->nb[1] == k->nb[1] && v->nb[2] == k->nb[2];
}

// Number of the cache's stream that a view begins with.
static int64_t first_stream(const ggml_tensor * part) {
    const ggml_tensor * base = part->view_src ? part->view_src : part;
    return base->ne[2] > 1 ? int64_t(((const char *) part->data - (const char *) base->data)/base->nb[2]) : 0;
}

void staging::collect_tile(const graph_copy::node_pair & pair, int64_t stream, int64_t tile, node_feed & n, step_feeds & step) {
    const ggml_tensor * node   = pair.source;
    const int64_t       cells  = node->op_params[RKV_OP_PARAM_TILE];
    const int64_t       n_win  = node->src[1]->ne[1];
    const int64_t       begin  = tile*cells;
    const bool          tail   = begin >= n_win;
    const ggml_tensor * k      = node->src[tail ? int(RKV_ATTN_SRC_K_TAIL) : 1];
    const ggml_tensor * v      = node->src[tail ? int(RKV_ATTN_SRC_V_TAIL) : 2];
    const int64_t       first  = tail ? n_win : 0;
    const int64_t       end    = std::min(begin + cells, first + k->ne[1]);
    if (!in_tail_memory(d, k)) {
        return;
    }

    ring_tile r;
    r.node   = uint32_t(step.nodes.size() - 1);
    r.stream = uint32_t(stream);
    r.tile   = uint32_t(tile);

    // Cells [begin, stable) are left alone by the step, [stable, live) are written or may be.
    int64_t stable = begin;
    int64_t live   = end;
    const rkv_step * info = step_of(node);
    const int64_t    of   = first_stream(k) + stream;
    if (info && of < info->n_stream) {
        const rkv_step_stream & s = info->streams[of];
        if (begin >= s.live_end) {
            return;
        }
        live   = std::min<int64_t>(end, s.live_end);
        stable = begin < s.written_end && end > s.written_begin ? std::max<int64_t>(begin, s.written_begin) : live;
    }

    const bool within = v_within_k(k, v);
    const auto part   = [&](int64_t from, int64_t to) {
        return ring_part{ rows_of(k, from - first, to - from, stream), within ? ring_rows() : rows_of(v, from - first, to - from, stream) };
    };
    r.stable  = part(begin, stable);
    r.written = part(stable, live);
    r.all     = part(begin, live);

    // A slot has room for the whole tile, so that a row's place in it does not depend on how many are in use.
    const ring_part  whole = part(begin, end);
    const size_t     k_end = aligned(whole.k.bytes());
    n.index[size_t(stream)*n.n_tile + tile] = int(step.tiles.size());
    step.layouts.push_back({ whole.k.width, within ? whole.k.width : whole.v.width,
            within ? size_t((const char *) v->data - (const char *) k->data) : k_end, k_end + aligned(whole.v.bytes()) });
    step.tiles.push_back(r);
}

void staging::collect_node(const graph_copy::node_pair & pair, step_feeds & step) {
    const ggml_tensor * node     = pair.source;
    const ggml_tensor * k_tail   = node->src[RKV_ATTN_SRC_K_TAIL];
    const int64_t       tile     = node->op_params[RKV_OP_PARAM_TILE];
    const int64_t       n_kv     = node->src[1]->ne[1] + (k_tail ? k_tail->ne[1] : 0);
    const int64_t       n_stream = node->src[0]->ne[3];
    const int           n_tile   = int((n_kv + tile - 1)/tile);

    step.nodes.emplace_back();
    node_feed & n = step.nodes.back();
    n.feed   = { &n, feed_calls::begin, feed_calls::brings, feed_calls::acquire, feed_calls::release };
    n.owner  = this;
    n.node   = pair.copy;
    n.n_tile = n_tile;
    n.step   = &step;
    n.index.assign(size_t(n_stream)*n_tile, -1);

    const size_t before_node = step.tiles.size();
    for (int64_t s = 0; s < n_stream; ++s) {
        for (int64_t t = 0; t < n_tile; ++t) {
            collect_tile(pair, s, t, n, step);
        }
    }
    if (step.tiles.size() == before_node) {
        step.nodes.pop_back();
    }
}

uint32_t staging::depth_for(size_t slot_bytes) const {
    if (params.depth) {
        return params.depth;
    }
    const uint64_t free = d.mem.total() - d.mem.used();
    return uint32_t(std::min<uint64_t>(std::max<uint64_t>(free/8/slot_bytes, 2), DEPTH_MAX));
}

void staging::need(size_t slot_bytes) {
    if (ring && ring->slot_bytes >= slot_bytes) {
        return;
    }
    const uint32_t depth = depth_for(slot_bytes);
    settle();
    before = totals();
    ring.reset();
    ring = std::make_unique<slots>(d, params, slot_bytes, depth, seed);
}

std::shared_ptr<step_feeds> staging::begin(graph_copy & graph) {
    auto step = std::make_shared<step_feeds>();
    for (const auto & pair : graph.tiled()) {
        collect_node(pair, *step);
    }
    if (step->tiles.empty()) {
        return nullptr;
    }
    size_t slot_bytes = 0;
    for (const auto & layout : step->layouts) {
        slot_bytes = std::max(slot_bytes, layout.bytes);
    }
    need(slot_bytes);

    const rkv::ring_plan plan = ring->ring.begin(step->tiles, uint32_t(step->nodes.size()), d.tail_writes.load());
    step->uses      = plan.uses;
    step->discarded = plan.discarded;
    step->released.reset(new std::atomic<int>[step->tiles.size()]());
    for (const ring_copy & copy : plan.copies) {
        ring->give(copy, step->layouts[copy.index].v_offset);
    }
    for (size_t i = 0; i < step->nodes.size(); ++i) {
        node_feed & n = step->nodes[i];
        n.number = plan.first_node + i;
        const rkv_tile_feed * feed = &n.feed;
        memcpy(n.node->op_params + RKV_OP_PARAM_FEED, &feed, sizeof(feed));
    }
    return step;
}

void staging::start(const step_feeds & step) {
    if (step.discarded) {
        ring->released.signal(step.discarded);
    }
}

rkv_staging_totals staging::totals() const {
    rkv_staging_totals t = before;
    if (ring) {
        const rkv::ring_totals & r = ring->ring.totals();
        t.steps           += r.steps;
        t.depth            = ring->depth;
        t.slot_bytes       = ring->slot_bytes;
        t.device_bytes     = ring->slot_bytes*ring->depth;
        t.tiles_early     += r.tiles_early;
        t.tiles_late      += r.tiles_late;
        t.tiles_kept      += r.tiles_kept;
        t.tiles_discarded += r.tiles_discarded;
        t.bytes           += r.bytes;
        t.bytes_late      += r.bytes_late;
    }
    t.stalls       = stalls;
    t.stall_ns     = stall_ns;
    return t;
}

} // namespace rkv_sim
