// A ring on a card's two streams. A small cache decodes with some of its cells in a tail, and must give the bits that it gives when it is
// resident, whatever the streams do first. And what is given to the streams is, copy by copy and wait by wait, what the ring's plan says,
// which is what the simulated device carries out.

#include "rkv-attn-node.h"
#include "rkv-split-rows.h"
#include "rkv-step.h"
#include "test-rkv-cuda-host.h"
#include "test-rkv-lanes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>

static int n_passed = 0;
static int n_failed = 0;

static bool check(bool ok, const std::string & what) {
    ++(ok ? n_passed : n_failed);
    if (!ok) {
        printf("FAIL %s\n", what.c_str());
    }
    return ok;
}

namespace {

struct shape {
    int  n_layer    = 3;
    int  n_head     = 4;
    int  n_head_kv  = 2;
    int  d          = 16;
    int  tile       = 32;
    int  kv_size    = 384;
    int  n_stream   = 1;
    int  window     = 64;  // cells; 0: every cell is in the tail
    bool mla        = false; // V is the first half of K's rows

    uint32_t           depth      = 3;
    uint32_t           copy_cells = 64;
    rkv::ring_schedule schedule   = rkv::ring_schedule::ring;

    int    d_v() const { return mla ? d/2 : d; }
    size_t row_k() const { return size_t(n_head_kv)*d*sizeof(ggml_fp16_t); }
    size_t row_v() const { return size_t(n_head_kv)*d_v()*sizeof(ggml_fp16_t); }
};

// Rows of K or V of one layer in two parts.
struct rows_of_layer {
    std::vector<char> part[2];
    size_t            row;

    rows_of_layer(const shape & s, int window, size_t row) : row(row) {
        part[0].assign(size_t(window)*s.n_stream*row, char(0xff));
        part[1].assign(size_t(s.kv_size - window)*s.n_stream*row, 0);
    }
    rkv::split_rows split(const shape & s, int window) {
        return { part[0].data(), part[1].data(), row, row, window, s.kv_size - window, false };
    }
};

// What one step adds: the same for each cache that runs it.
struct step_input {
    std::vector<int>                      cells;  // [streams] first cell that is written
    int                                   n_new;  // rows of a stream
    std::vector<int>                      live;   // [streams] cells in use with them
    std::vector<std::vector<ggml_fp16_t>> k, v;   // [layers] rows, of one stream behind the other
    std::vector<std::vector<float>>       q;      // [layers]
    int                                   n_kv;
};

struct cache {
    shape                      s;
    int                        window;
    std::vector<rows_of_layer> k, v;

    cache(const shape & s, int window) : s(s), window(window) {
        for (int il = 0; il < s.n_layer; ++il) {
            k.emplace_back(s, window, s.row_k());
            v.emplace_back(s, window, s.row_v());
        }
    }
};

// The graph's nodes of one step, and what they point to.
struct step_graph {
    ggml_context *                   ctx = nullptr;
    std::vector<ggml_tensor *>       nodes; // [layers]
    std::vector<std::vector<float>>  q;
    std::vector<ggml_fp16_t>         mask;
    std::vector<std::vector<char>>   room;  // of the results and of what they are computed in
    std::vector<rkv_step_stream>     streams;
    rkv_step                         step;

    std::vector<std::unique_ptr<rkv::gathered>> gathered; // layers of a long batch

    step_graph() = default;
    step_graph(const step_graph &) = delete;
    ~step_graph() { ggml_free(ctx); }
};

} // namespace

static ggml_tensor * part_of(step_graph & g, const shape & s, rows_of_layer & rows, int part, int d, int64_t n, int64_t n_part) {
    ggml_tensor * base = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F16, int64_t(d)*s.n_head_kv, n_part, s.n_stream);
    base->data = rows.part[part].data();
    const size_t  head = d*sizeof(ggml_fp16_t);
    ggml_tensor * t    = ggml_view_4d(g.ctx, base, d, n, s.n_head_kv, s.n_stream, rows.row, head, rows.row*n_part, 0);
    t->data = base->data;
    return t;
}

static void make_node(step_graph & g, cache & c, const step_input & in, int il) {
    const shape & s = c.s;
    g.q[il] = in.q[il];
    ggml_tensor * q = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F32, s.d, in.n_new, s.n_head, s.n_stream);
    q->data = g.q[il].data();
    ggml_tensor * mask = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, in.n_kv, in.n_new, 1, s.n_stream);
    mask->data = g.mask.data();

    ggml_tensor * k[2] = {};
    ggml_tensor * v[2] = {};
    const int64_t of_part[2] = { std::min(in.n_kv, c.window), std::max(in.n_kv - c.window, 0) };
    const int64_t size[2]    = { c.window, s.kv_size - c.window };
    for (int part = 0, n = 0; part < 2; ++part) {
        if (of_part[part] > 0) {
            k[n] = part_of(g, s, c.k[il], part, s.d, of_part[part], size[part]);
            v[n] = s.mla ? ggml_view_4d(g.ctx, k[n], s.d_v(), k[n]->ne[1], s.n_head_kv, s.n_stream, k[n]->nb[1], k[n]->nb[2], k[n]->nb[3], 0)
                         : part_of(g, s, c.v[il], part, s.d_v(), of_part[part], size[part]);
            v[n]->data = s.mla ? k[n]->data : v[n]->data;
            n++;
        }
    }
    ggml_tensor * node = ggml_flash_attn_ext(g.ctx, q, k[0], v[0], mask, 1.0f/std::sqrt(float(s.d)), 0.0f, 0.0f);
    node->src[RKV_ATTN_SRC_K_TAIL] = k[1];
    node->src[RKV_ATTN_SRC_V_TAIL] = v[1];
    node->op_params[RKV_OP_PARAM_TILE] = s.tile;
    const rkv_step * step = &g.step;
    memcpy(node->op_params + RKV_OP_PARAM_STEP, &step, sizeof(step));
    const rkv::attn_args a    = rkv::attn_args_read(node);
    const size_t         room = rkv::decode_room(a, a.n_q).bytes;
    rkv::gathered whole(a, true);
    whole.place(room);
    g.room[il].assign(whole.bytes, char(0xff));
    node->data = g.room[il].data();
    g.nodes[il] = node;
}

static std::unique_ptr<step_graph> make_graph(cache & c, const step_input & in) {
    auto g = std::make_unique<step_graph>();
    g->ctx = ggml_init({ 64*size_t(c.s.n_layer)*ggml_tensor_overhead(), nullptr, true });
    g->nodes.resize(c.s.n_layer);
    g->q.resize(c.s.n_layer);
    g->room.resize(c.s.n_layer);
    g->streams.resize(c.s.n_stream);
    for (int st = 0; st < c.s.n_stream; ++st) {
        g->streams[st] = { uint32_t(in.cells[st]), uint32_t(in.cells[st] + in.n_new), uint32_t(in.live[st]) };
        for (int iq = 0; iq < in.n_new; ++iq) {
            for (int cell = 0; cell < in.n_kv; ++cell) {
                g->mask.push_back(ggml_fp32_to_fp16(cell <= in.cells[st] + iq ? 0.0f : -INFINITY));
            }
        }
    }
    g->step = { uint32_t(c.s.n_stream), g->streams.data() };
    for (int il = 0; il < c.s.n_layer; ++il) {
        make_node(*g, c, in, il);
    }
    return g;
}

// New rows of a layer, each to the part that its cell belongs to.
static void write_rows(cache & c, const step_input & in, int il) {
    const auto write = [&](rows_of_layer & to, const std::vector<ggml_fp16_t> & rows) {
        const rkv::split_rows split = to.split(c.s, c.window);
        for (int st = 0; st < c.s.n_stream; ++st) {
            for (int i = 0; i < in.n_new; ++i) {
                memcpy(split.row(int64_t(st)*c.s.kv_size + in.cells[st] + i), (const char *) rows.data() + size_t(st*in.n_new + i)*to.row, to.row);
            }
        }
    };
    write(c.k[il], in.k[il]);
    if (!c.s.mla) {
        write(c.v[il], in.v[il]);
    }
}

static std::vector<float> result_of(const ggml_tensor * node) {
    const float * x = (const float *) node->data;
    return { x, x + ggml_nelements(node) };
}

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

// A plan of its own for the same steps, and what was given to the streams against it.
class plan_check {
public:
    plan_check(const shape & s, char * slots, size_t slot_bytes) : s(s), plan_of(s.schedule, s.depth), slots(slots), slot_bytes(slot_bytes) {}

    void begin(const rkv::collected & step, uint32_t n_nodes, uint64_t generation, const two_lanes & lanes) {
        plan = plan_of.begin(step.tiles, n_nodes, generation);
        for (const rkv::ring_copy & c : plan.copies) {
            char * slot = slots + c.seq%s.depth*slot_bytes;
            const bool late = c.lane == rkv::RING_LATE;
            expect(late, slot + c.row0*c.part.k.width, c.part.k, c);
            expect(late, slot + step.layouts[c.index].v_offset + c.row0*c.part.v.width, c.part.v, c);
        }
        if (plan.discarded) {
            released.push_back({ plan.discarded, lanes.now(rkv::STREAM_COMPUTE)[0] });
        }
    }
    void begin_node(uint32_t node, const two_lanes & lanes) { begun.push_back({ plan.first_node + node + 1, lanes.now(rkv::STREAM_COMPUTE)[0] }); }
    void release(size_t tile, const two_lanes & lanes) { released.push_back({ plan.uses[tile].released, lanes.now(rkv::STREAM_COMPUTE)[0] }); }

    // A reader waits for the copies ahead that its tile is made of.
    void acquired(size_t tile, const two_lanes & lanes) {
        const uint64_t copies = plan.uses[tile].copied[rkv::RING_AHEAD];
        n_wrong += lanes.now(rkv::STREAM_COMPUTE)[1] < moves_of(copies);
    }

    // Everything that was given, in order and with what is before it. Copies ahead of a step that did not come may be missing.
    bool holds(const two_lanes & lanes) {
        size_t n[2] = {};
        size_t waited = 0;
        for (const two_lanes::moved & m : lanes.log) {
            const auto & list = expected[m.pulled];
            if (n[m.pulled] == list.size()) {
                return false;
            }
            const move & e = list[n[m.pulled]++];
            if (e.dst != m.dst || !(e.rows == m.rows)) {
                return false;
            }
            const size_t before = std::max(point_of(released, e.copy.after_released), point_of(begun, e.copy.after_begun));
            if (m.pulled) {
                n_wrong += m.after[0] < before || m.after[1] < moves_of(e.copy.after_ahead);
            } else {
                // Not less than the plan says, and not more.
                waited = std::max(waited, before);
                n_wrong += m.after[0] != waited;
            }
        }
        return n_wrong == 0 && n[1] == expected[1].size();
    }

private:
    struct move {
        char *         dst;
        rkv::ring_rows rows;
        rkv::ring_copy copy;
    };
    struct point {
        uint64_t value;
        size_t   at; // things of the computing lane that lie before
    };

    const shape &      s;
    rkv::ring          plan_of;
    char *             slots;
    size_t             slot_bytes;
    rkv::ring_plan     plan;
    std::vector<move>  expected[2]; // copies ahead; late ones
    std::vector<point> released, begun;
    size_t             n_wrong = 0;

    void expect(bool late, char * dst, const rkv::ring_rows & rows, const rkv::ring_copy & copy) {
        if (rows.bytes() > 0) {
            expected[late].push_back({ dst, rows, copy });
        }
    }

    static size_t point_of(const std::vector<point> & list, uint64_t value) {
        for (const point & p : list) {
            if (p.value >= value && value > 0) {
                return p.at;
            }
        }
        return 0;
    }

    // K and V of the first `copies` copies ahead are moves of their own.
    size_t moves_of(uint64_t copies) const {
        return size_t(std::count_if(expected[0].begin(), expected[0].end(), [&](const move & m) { return m.copy.number < copies; }));
    }
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
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
