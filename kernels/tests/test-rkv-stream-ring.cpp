// A ring on a card's two streams. A small cache decodes with some of its cells in a tail, and must give the bits that it gives when it is
// resident, whatever the streams do first. And what is given to the streams is, copy by copy and wait by wait, what the ring's plan says,
// which is what the simulated device carries out.

#include "rkv-test-check.h"
#include "test-rkv-cuda-host.h"
#include "test-rkv-lanes.h"
#include "test-rkv-plan-check.h"
#include "test-rkv-small-cache.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>

//
// the resident twin
//

static std::vector<std::vector<float>> run_resident(cache & c, const step_input & in) {
    const auto g = make_graph(c, in);
    host_queue queue;
    std::vector<std::vector<float>> res;
    for (int il = 0; il < c.s.n_layer; ++il) {
        write_rows(c, in, il);
        const rkv::attn_args a = rkv::attn_args_read(g->nodes[il]);
        rkv::attend({ a }, queue);
        res.push_back(result_of(g->nodes[il]));
    }
    return res;
}

//
// the ring
//

namespace {

class ring_tiles : public rkv::brought_tiles {
public:
    ring_tiles(rkv::stream_ring & ring, const rkv::collected & step, size_t first, size_t n) : ring(ring), step(step), first(first), n(n) {}

    size_t                   count() const override { return n; }
    const rkv::ring_tile &   tile(size_t i) const override { return step.tiles[first + i]; }
    const rkv::slot_layout & layout(size_t i) const override { return step.layouts[first + i]; }
    const char *             acquire(size_t i) override { return ring.acquire(first + i); }
    void                     release(size_t i) override { ring.release(first + i); }

private:
    rkv::stream_ring &     ring;
    const rkv::collected & step;
    size_t                 first, n;
};

class spilled {
public:
    spilled(const shape & s, pace p, uint32_t seed, rkv::ring_fault fault)
        : c(s, s.window), lanes(p, seed), slot_bytes(2*s.copy_cells*s.row_k() + 512), slots(s.depth*slot_bytes, char(0xff)), plan(c.s, slots.data(), slot_bytes) {
        lanes.make_events(rkv::stream_ring::n_events(s.depth));
        ring = std::make_unique<rkv::stream_ring>(lanes, s.schedule, s.depth, fault, slots.data(), slot_bytes);
    }

    // Gives a step to the streams. As one graph, or in two, as if a layer between them lay elsewhere.
    void give(const step_input & in, bool in_two) {
        graphs.push_back(make_graph(c, in));
        inputs.push_back(std::make_unique<step_input>(in));
        const int cut = in_two ? c.s.n_layer/2 : c.s.n_layer;
        give_part(*graphs.back(), *inputs.back(), 0, cut);
        give_part(*graphs.back(), *inputs.back(), cut, c.s.n_layer);
    }

    // Something else changes a row, once the steps so far have been computed.
    void change(int il, int stream, int cell, const std::vector<char> & row) {
        lanes.finish(rkv::STREAM_COMPUTE);
        memcpy(c.k[il].split(c.s, c.window).row(int64_t(stream)*c.s.kv_size + cell), row.data(), row.size());
        generation++;
    }

    std::vector<std::vector<std::vector<float>>> finish() {
        lanes.finish(rkv::STREAM_COMPUTE);
        std::vector<std::vector<std::vector<float>>> res;
        for (const auto & g : graphs) {
            res.emplace_back();
            for (const ggml_tensor * node : g->nodes) {
                res.back().push_back(result_of(node));
            }
        }
        return res;
    }

    bool is_stuck() const { return lanes.stuck; }
    bool plan_holds() { return plan.holds(lanes); }
    const rkv::ring_totals & totals() const { return ring->totals(); }

private:
    cache                                    c;
    two_lanes                                lanes;
    size_t                                   slot_bytes;
    std::vector<char>                        slots;
    plan_check                               plan;
    std::unique_ptr<rkv::stream_ring>        ring;
    std::deque<std::unique_ptr<step_graph>>  graphs;
    std::deque<std::unique_ptr<step_input>>  inputs;
    uint64_t                                 generation = 0;

    struct node_tiles {
        int    il;
        size_t first, n;
    };

    void give_part(step_graph & g, const step_input & in, int from, int to) {
        if (from == to) {
            return;
        }
        rkv::collected          step;
        std::vector<node_tiles> fed;
        std::vector<int>        index;
        for (int il = from; il < to; ++il) {
            const size_t first = step.tiles.size();
            if ((g.nodes[il]->src[RKV_ATTN_SRC_K_TAIL] || c.window == 0) &&
                rkv::collect_tiles(g.nodes[il], uint32_t(fed.size()), c.s.copy_cells, step, index)) {
                fed.push_back({ il, first, step.tiles.size() - first });
            }
        }
        if (!step.tiles.empty()) {
            plan.begin(step, uint32_t(fed.size()), generation, lanes);
            ring->begin(step, uint32_t(fed.size()), generation);
        }
        size_t next = 0;
        for (int il = from; il < to; ++il) {
            lanes.compute([this, &in, il] { write_rows(c, in, il); });
            const bool is_fed = next < fed.size() && fed[next].il == il;
            attend_layer(g, il, step, is_fed ? &fed[next] : nullptr, next);
            next += is_fed;
        }
    }

    // A long batch is computed over all cells in one place; here too by our own kernels, so that the bits can be compared.
    void compute(step_graph & g, const rkv::placed_node & placed) {
        const rkv::attn_args & a = placed.a;
        if (a.n_q <= rkv::TILES_QUERIES_MAX) {
            rkv::attend(placed, lanes);
            return;
        }
        g.gathered.push_back(std::make_unique<rkv::gathered>(a, true));
        rkv::gathered & whole = *g.gathered.back();
        whole.place(rkv::decode_room(a, a.n_q).bytes);
        rkv::gather(placed, whole, lanes);
        whole.node.op_params[RKV_OP_PARAM_TILE] = a.tile;
        rkv::attend({ rkv::attn_args_read(&whole.node) }, lanes);
    }

    void attend_layer(step_graph & g, int il, const rkv::collected & step, const node_tiles * fed, size_t number) {
        const rkv::attn_args a = rkv::attn_args_read(g.nodes[il]);
        rkv::placed_node     placed = { a };
        placed.in_tail[0] = c.window == 0;
        placed.in_tail[1] = a.part_k[1] != nullptr;
        if (!fed) {
            compute(g, placed);
            return;
        }
        plan.begin_node(uint32_t(number), lanes);
        ring->begin_node(uint32_t(number));

        struct watched : ring_tiles {
            watched(spilled & of, const rkv::collected & step, const node_tiles & n) : ring_tiles(*of.ring, step, n.first, n.n), of(of), first(n.first) {}
            const char * acquire(size_t i) override {
                const char * slot = ring_tiles::acquire(i);
                of.plan.acquired(first + i, of.lanes);
                return slot;
            }
            void release(size_t i) override {
                of.plan.release(first + i, of.lanes);
                ring_tiles::release(i);
            }
            spilled & of;
            size_t    first;
        } brought(*this, step, *fed);
        placed.brought = &brought;
        compute(g, placed);
    }
};

// A walk of steps: some tokens at a time, now and then a longer batch, something removed from the end, or a row changed by someone else.
class story {
public:
    story(const shape & s, uint32_t seed) : s(s), rng(seed), live(s.n_stream, 0) {}

    step_input next() {
        step_input in;
        // Grows quickly until some cells lie in the tail.
        in.n_new = live[0] < s.window + 70 ? 16 : rng()%6 == 0 ? 1 + int(rng()%24) : 1;
        int most = 0;
        for (int st = 0; st < s.n_stream; ++st) {
            if (rng()%10 == 0 && live[st] > 40) {
                live[st] -= int(rng()%30);
            }
            live[st] = std::min(live[st], s.kv_size - in.n_new);
            in.cells.push_back(live[st]);
            live[st] += in.n_new;
            in.live.push_back(live[st]);
            most = std::max(most, live[st]);
        }
        in.n_kv = std::min((most + 63)/64*64, s.kv_size);
        for (int il = 0; il < s.n_layer; ++il) {
            in.k.push_back(halves(size_t(s.n_stream)*in.n_new*s.row_k()/sizeof(ggml_fp16_t)));
            in.v.push_back(halves(size_t(s.n_stream)*in.n_new*s.row_v()/sizeof(ggml_fp16_t)));
            std::vector<float> q(size_t(s.d)*in.n_new*s.n_head*s.n_stream);
            std::generate(q.begin(), q.end(), [&] { return dist(rng); });
            in.q.push_back(q);
        }
        return in;
    }

    std::vector<char> row() {
        const auto h = halves(s.row_k()/sizeof(ggml_fp16_t));
        return { (const char *) h.data(), (const char *) (h.data() + h.size()) };
    }

    uint32_t random(uint32_t n) { return rng()%n; }
    int      in_use(int stream) const { return live[stream]; }

private:
    const shape &                   s;
    std::mt19937                    rng;
    std::normal_distribution<float> dist;
    std::vector<int>                live;

    std::vector<ggml_fp16_t> halves(size_t n) {
        std::vector<ggml_fp16_t> x(n);
        std::generate(x.begin(), x.end(), [&] { return ggml_fp32_to_fp16(dist(rng)); });
        return x;
    }
};

struct outcome {
    bool same;   // as the resident twin
    bool plan;   // what was given to the streams is what the plan says
    bool stuck;
    rkv::ring_totals totals;
};

} // namespace

static outcome run(const shape & s, pace p, uint32_t seed, rkv::ring_fault fault, int n_steps) {
    story   tale(s, seed);
    cache   resident(s, s.kv_size);
    spilled ours(s, p, seed, fault);
    std::vector<std::vector<std::vector<float>>> right;
    for (int i = 0; i < n_steps; ++i) {
        const step_input in = tale.next();
        right.push_back(run_resident(resident, in));
        ours.give(in, tale.random(8) == 0);
        if (tale.random(9) == 0) {
            const int  stream = int(tale.random(uint32_t(s.n_stream)));
            const int  cell   = int(tale.random(uint32_t(tale.in_use(stream))));
            const int  il     = int(tale.random(uint32_t(s.n_layer)));
            const auto row    = tale.row();
            memcpy(resident.k[il].split(s, s.kv_size).row(int64_t(stream)*s.kv_size + cell), row.data(), row.size());
            ours.change(il, stream, cell, row);
        }
    }
    const auto res   = ours.finish();
    bool       same  = res.size() == right.size();
    for (size_t i = 0; same && i < res.size(); ++i) {
        for (int il = 0; il < s.n_layer; ++il) {
            same = same && memcmp(res[i][il].data(), right[i][il].data(), right[i][il].size()*sizeof(float)) == 0;
        }
    }
    return { same, ours.plan_holds(), ours.is_stuck(), ours.totals() };
}

static std::vector<shape> shapes() {
    std::vector<shape> res;
    for (int window : { 0, 32, 192 }) {
        for (uint32_t depth : { 1u, 2u, 5u }) {
            shape s;
            s.window = window;
            s.depth  = depth;
            res.push_back(s);
        }
    }
    shape streams;
    streams.n_stream = 2;
    res.push_back(streams);
    shape mla;
    mla.mla       = true;
    mla.n_head_kv = 1;
    res.push_back(mla);
    shape op;
    op.schedule = rkv::ring_schedule::op;
    res.push_back(op);
    shape tiles;
    tiles.copy_cells = 32;
    tiles.depth      = 40;
    res.push_back(tiles);
    return res;
}

static const pace PACES[] = { pace::random, pace::copies_first, pace::copies_last };

static void same_bits_and_plan() {
    uint64_t kept = 0, early = 0, discarded = 0;
    for (const shape & s : shapes()) {
        for (pace p : PACES) {
            for (uint32_t seed = 1; seed <= 2; ++seed) {
                const outcome     o    = run(s, p, seed, rkv::RING_FAULT_NONE, 45);
                const std::string what = "window " + std::to_string(s.window) + ", depth " + std::to_string(s.depth) + ", streams " + std::to_string(s.n_stream) +
                    (s.mla ? ", MLA" : "") + ", pace " + std::to_string(int(p)) + ", seed " + std::to_string(seed);
                check(!o.stuck, "the streams go on: " + what);
                check(o.same, "the bits are those of the resident cache: " + what);
                check(o.plan, "what is given to the streams is the plan: " + what);
                kept      += o.totals.tiles_kept;
                early     += o.totals.tiles_early;
                discarded += o.totals.tiles_discarded;
            }
        }
    }
    check(kept > 0 && early > 0 && discarded > 0, "tiles were copied ahead, kept and discarded");
}

// What the protocol protects from: each fault shows in the bits, and in what is given to the streams.
static void faults_show() {
    const struct {
        rkv::ring_fault fault;
        const char *    name;
    } faults[] = {
        { rkv::RING_FAULT_STALE,      "stale" },
        { rkv::RING_FAULT_REUSE,      "reuse" },
        { rkv::RING_FAULT_GENERATION, "generation" },
        { rkv::RING_FAULT_IDENTITY,   "identity" },
    };
    for (const auto & f : faults) {
        bool differs = false;
        bool planned = true;
        for (pace p : PACES) {
            for (uint32_t seed = 1; seed <= 4; ++seed) {
                shape s;
                s.depth = 4;
                const outcome o = run(s, p, seed, f.fault, 60);
                differs = differs || !o.same;
                planned = planned && o.plan;
            }
        }
        check(differs, std::string("the fault shows in the bits: ") + f.name);
        check(!planned, std::string("the fault shows against the plan: ") + f.name);
    }
}

int main() {
    same_bits_and_plan();
    faults_show();
    return test_closing();
}
