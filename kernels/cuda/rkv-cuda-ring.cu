#include "rkv-cuda-ring.h"

#include "rkv-cuda-link.h"
#include "rkv-cuda-streams.h"

#include "rkv-attn-args.h"
#include "rkv-attn-node.h"
#include "rkv-ring-fault.h"
#include "rkv-totals.h"

#include "common.cuh"
#include "ggml-cuda.h"
#include "ggml-impl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <unordered_map>

//
// slots
//

// Slots, and everything that counts them.
struct rkv_cuda_ring::slots_of {
    slots_of(int device, rkv::stream_queue & queue, const rkv_staging_params & params, uint32_t depth, size_t slot_bytes, void * address, bool own)
        : device(device), slot_bytes(slot_bytes), depth(depth), address(address), own(own),
          ring(queue, params.schedule == RKV_SCHEDULE_OP ? rkv::ring_schedule::op : rkv::ring_schedule::ring, depth, rkv::ring_fault_now(), (char *) address,
                  slot_bytes) {}

    int              device;
    size_t           slot_bytes;
    uint32_t         depth;
    void *           address;
    bool             own; // false with RKV_FAULT_RING_OWNER alone
    rkv::stream_ring ring;

    uint64_t bytes() const { return uint64_t(slot_bytes)*depth; }
};

// Frees the memory once nothing reads it any more.
static void free_slots(int device, void * address, bool own) {
    if (own) {
        void * mine = address;
        rkv_cuda_counts_of(device).first_slots.compare_exchange_strong(mine, nullptr);
        CUDA_CHECK(cudaFree(address));
    }
}

rkv_cuda_ring::rkv_cuda_ring(ggml_backend_cuda_context & ctx) : ctx(ctx), queue(new rkv_cuda_streams(ctx)), host_side(ctx) {}

rkv_cuda_ring::~rkv_cuda_ring() {
    ggml_cuda_set_device(ctx.device);
    queue->synchronize();
    if (slots) {
        void *     address = slots->address;
        const bool own     = slots->own;
        slots.reset();
        free_slots(ctx.device, address, own);
    }
    if (zeroes) {
        CUDA_CHECK(cudaFree(zeroes));
    }
}

namespace {

std::mutex                                                                          rings_mutex;
std::unordered_map<ggml_backend_cuda_context *, std::unique_ptr<rkv_cuda_ring>> rings;

} // namespace

rkv_cuda_ring * rkv_cuda_ring::of(ggml_backend_cuda_context & ctx, bool make) {
    const std::lock_guard<std::mutex> lock(rings_mutex);
    const auto it = rings.find(&ctx);
    if (it != rings.end()) {
        return it->second.get();
    }
    return make ? rings.emplace(&ctx, std::make_unique<rkv_cuda_ring>(ctx)).first->second.get() : nullptr;
}

void rkv_cuda_ring::free(ggml_backend_cuda_context & ctx) {
    std::unique_ptr<rkv_cuda_ring> ring;
    const std::lock_guard<std::mutex> lock(rings_mutex);
    const auto it = rings.find(&ctx);
    if (it != rings.end()) {
        ring = std::move(it->second);
        rings.erase(it);
    }
}

bool rkv_cuda_ring::prepare(const rkv_staging_params & p, const rkv_staging_need & n) {
    params = p;
    if (n.cells_all == 0) {
        return true;
    }
    size_t free_bytes  = 0;
    size_t total_bytes = 0;
    ggml_backend_cuda_get_device_memory(ctx.device, &free_bytes, &total_bytes);
    link = rkv_cuda_link(ctx.device);
    plan = rkv::plan_staging(p, n, free_bytes + (slots && slots->own ? slots->bytes() : 0), link);
    host_side.use(n.host, int(std::max(p.host_threads, 1u)));
    if (!n.host) {
        if (p.engine == RKV_TAIL_ENGINE_HOST || p.engine == RKV_TAIL_ENGINE_HYBRID) {
            GGML_LOG_ERROR("rolling-kv: the CPU backend has no host engine; next: use --kv-tail-engine stream\n");
            return false;
        }
        params.engine = RKV_TAIL_ENGINE_STREAM;
    }
    balance.reset(new rkv::tail_balance(params.engine, link.bytes_s));
    return need(plan.slot_bytes);
}

// Slots of at least so many bytes.
bool rkv_cuda_ring::need(size_t slot_bytes) {
    if (slots && slots->slot_bytes >= slot_bytes && slots->depth == plan.depth) {
        return true;
    }
    ggml_cuda_set_device(ctx.device);
    queue->synchronize();
    before = totals();
    if (slots) {
        void *     address = slots->address;
        const bool own     = slots->own;
        slots.reset();
        free_slots(ctx.device, address, own);
    }
    rkv_cuda_counts & counts  = rkv_cuda_counts_of(ctx.device);
    void *            address = counts.first_slots.load();
    const bool        own     = rkv_fault_get() != RKV_FAULT_RING_OWNER || !address;
    if (!queue->make_events(rkv::stream_ring::n_events(plan.depth)) || (own && cudaMalloc(&address, slot_bytes*plan.depth) != cudaSuccess)) {
        (void) cudaGetLastError();
        GGML_LOG_ERROR("rolling-kv: failed to take %.2f MiB on CUDA device %d for the slots of the staging ring; next: make the window smaller, or give a "
                       "lower --kv-ring-depth\n", double(slot_bytes)*plan.depth/1024.0/1024.0, ctx.device);
        return false;
    }
    void * none = nullptr;
    counts.first_slots.compare_exchange_strong(none, address);
    slots.reset(new slots_of(ctx.device, *queue, params, plan.depth, slot_bytes, address, own));
    return true;
}

//
// a step
//

static rkv_layer_counters * counters_of(const ggml_tensor * node) {
    rkv_layer_counters * c;
    memcpy(&c, node->op_params + RKV_OP_PARAM_COUNTERS, sizeof(c));
    return c;
}

// The device alone knows the mask, so tiles are counted by what the cache says is in use.
static void count(const rkv::attn_args & a, const rkv::collected & step, size_t first, const rkv_cuda_host_node * host, rkv_layer_counters & c) {
    uint64_t tail = host ? host->tiles.size() : 0;
    if (host) {
        c.tiles_host      += host->tiles.size();
        c.host_bytes_read += host->bytes;
        c.tail_bytes_read += host->bytes;
    }
    for (size_t i = first; i < step.tiles.size(); ++i) {
        tail += step.layouts[i].n_tile;
        c.tail_bytes_read += step.tiles[i].all.bytes();
    }
    const uint64_t window = c.all_in_tail ? 0 : uint64_t(a.n_stream)*a.n_tile_win;
    c.nodes++;
    c.tiles_window    += window;
    c.tiles_tail      += tail;
    c.partials_merged += a.n_q <= rkv::TILES_QUERIES_MAX ? (window + tail)*a.n_head*a.n_q : 0;
}

// Of each stream's tail the first ring[stream] tiles are brought, and the host attends to the others. False when the host cannot.
bool rkv_cuda_ring::collect(const ggml_tensor * node, const uint32_t * ring) {
    const size_t         first = step.tiles.size();
    rkv_cuda_host_node * host  = nullptr;
    if (rkv_cuda_in_tail(ctx.device, rkv::tail_of(node).k)) {
        std::vector<int>           index;
        std::vector<rkv_host_tile> tiles;
        if (rkv::collect_tiles(node, uint32_t(nodes.size()), plan.copy_cells, step, index, ring, &tiles)) {
            host = tiles.empty() ? nullptr : host_side.plan(node, tiles);
            if (!tiles.empty() && !host) {
                GGML_LOG_ERROR("rolling-kv: no threads or pinned memory for the host engine; next: use --kv-tail-engine stream\n");
                return false;
            }
            nodes.push_back({ node, first, step.tiles.size() - first, host });
        }
    }
    if (rkv_layer_counters * c = counters_of(node)) {
        count(rkv::attn_args_read(node), step, first, host, *c);
    }
    return true;
}

static bool is_ours(const ggml_tensor * node) {
    const bool computes = (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !ggml_is_empty(node);
    return computes && node->op == GGML_OP_FLASH_ATTN_EXT && rkv::attn_tile(node) != 0;
}

bool rkv_cuda_ring::collect_all(const ggml_cgraph * graph) {
    std::vector<rkv::balance_item> items;
    bool few = true;
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (is_ours(node) && rkv_cuda_in_tail(ctx.device, rkv::tail_of(node).k)) {
            rkv::collect_items(node, items);
            few = few && node->src[0]->ne[1] <= RKV_ATTN_QUERIES_FEW;
        }
    }
    if (items.empty()) {
        const uint64_t changes = last.changes;
        last = mark();
        last.changes = changes;
    } else {
        measure(few, last.link_bytes);
    }
    host_side.begin();

    const std::vector<uint32_t> split = few && balance ? balance->split(items) : std::vector<uint32_t>(items.size(), rkv::tail_balance::ALL);
    const uint32_t * ring = split.data();
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (!is_ours(node)) {
            continue;
        }
        if (!collect(node, ring)) {
            return false;
        }
        ring += rkv_cuda_in_tail(ctx.device, rkv::tail_of(node).k) ? node->src[0]->ne[3] : 0;
    }
    const auto by_host = [](const rkv_cuda_node & n) { return n.host != nullptr; };
    host_steps += std::any_of(nodes.begin(), nodes.end(), by_host);
    return true;
}

// By a step that was looked at: see rkv-cuda-waits.h.
void rkv_cuda_ring::measure(bool few_queries, uint64_t link_bytes) {
    mark now;
    now.few_queries = few_queries;
    now.at          = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    now.wait_ns     = host_side.totals().wait_ns;
    now.busy_ns     = host_side.busy_ns();
    now.busy_bytes  = host_side.busy_bytes();
    now.changes     = balance ? balance->changes() : 0;
    const double link_s = last.few_queries ? queue->waits.seconds() : -1;
    if (link_s >= 0 && few_queries && balance) {
        const double step_s = now.at - last.at;
        const double host_s = std::min(double(now.wait_ns - last.wait_ns)*1e-9, step_s);
        balance->measured({ step_s, std::min(link_s, step_s - host_s), host_s, link_bytes, now.busy_bytes - last.busy_bytes, double(now.busy_ns - last.busy_ns)*1e-9 });
    }
    if (few_queries) {
        queue->waits.begin(now.changes != last.changes);
    }
    last = now;
}

// Whether a node changes a tail by anything but new rows, which the cache announces: a shift of positions does.
static bool rewrites_tail(int device, const ggml_tensor * node) {
    return !ggml_op_is_empty(node->op) && node->op != GGML_OP_SET_ROWS && rkv_cuda_in_tail(device, node);
}

bool rkv_cuda_ring::begin(const ggml_cgraph * graph) {
    step     = rkv::collected();
    next     = 0;
    rewrites = false;
    nodes.clear();
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || ggml_is_empty(node)) {
            continue;
        }
        rewrites = rewrites || rewrites_tail(ctx.device, node);
    }
    if (!collect_all(graph)) {
        return false;
    }
    if (rkv_fault_get() == RKV_FAULT_STALE_TILE && !zeroes) {
        constexpr size_t LONGEST_ROW = 16384;
        CUDA_CHECK(cudaMalloc((void **) &zeroes, LONGEST_ROW));
        CUDA_CHECK(cudaMemset(zeroes, 0, LONGEST_ROW));
    }
    if (nodes.empty()) {
        return true;
    }
    size_t slot_bytes = 0;
    for (const rkv::slot_layout & layout : step.layouts) {
        slot_bytes = std::max(slot_bytes, layout.bytes);
    }
    if (slot_bytes > 0 && !need(slot_bytes)) {
        return false;
    }
    if (slots) {
        // Also of a step of which the host attends to every tile: it writes rows.
        const uint64_t before = slots->ring.totals().bytes;
        slots->ring.begin(step, uint32_t(nodes.size()), rkv_cuda_counts_of(ctx.device).tail_writes.load());
        last.link_bytes = slots->ring.totals().bytes - before;
    }
    return true;
}

void rkv_cuda_ring::end() {
    GGML_ASSERT(next == nodes.size() && (!slots || slots->ring.is_done()) && "a node of the step did not read its tiles");
    host_side.end();
    if (rewrites) {
        // Rare: the tiles of the next step must neither be kept nor be copied before this has run.
        CUDA_CHECK(cudaStreamSynchronize(queue->compute()));
        rkv_cuda_counts_of(ctx.device).tail_writes++;
    }
}

const rkv_cuda_node * rkv_cuda_ring::begin_node(const ggml_tensor * node) {
    if (next == nodes.size() || nodes[next].node != node) {
        return nullptr;
    }
    if (slots) {
        slots->ring.begin_node(uint32_t(next));
    }
    return &nodes[next++];
}

char * rkv_cuda_ring::acquire(size_t i) {
    return slots->ring.acquire(i);
}

void rkv_cuda_ring::release(size_t i) {
    slots->ring.release(i);
}

rkv_staging_totals rkv_cuda_ring::totals() const {
    rkv_staging_totals t = before;
    t.link_bytes_s   = link.bytes_s;
    t.link_latency_s = link.latency_s;
    t.copy_cells     = plan.copy_cells;
    if (slots) {
        t.depth        = slots->depth;
        t.slot_bytes   = slots->slot_bytes;
        t.device_bytes = slots->bytes();
        rkv::add_ring(t, slots->ring.totals());
    }
    t.graph_launches = graph_launches;
    t.stalls         = queue->waits.stalls;
    t.stall_ns       = queue->waits.stall_ns;
    rkv::set_host(t, host_side.totals(), host_steps, balance.get());
    return t;
}
