// Tiled attention, split writes and the ring on a device that tiles are brought to: a card, or the simulated one.
//
// Usage: test-rkv-device DEVICE, for example CUDA0, or SIM0 with ROLLING_KV_SIM=mem=512MiB
//
// What the device says no to is counted as skipped, and said.

#include "rkv-attn-node.h"
#include "rkv-backend.h"
#include "rkv-set-rows.h"
#include "rkv-step.h"
#include "test-rkv-attn-rig.h"
#include "test-rkv-decoder.h"

#include "ggml-alloc.h"
#include "ggml-cpp.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <utility>

static ggml_backend_t             backend;
static ggml_backend_buffer_type_t tail_buft;
static int    n_passed  = 0;
static int    n_failed  = 0;
static int    n_skipped = 0;
static double worst     = 0.0;
static double worst_many = 0.0;

static bool check(bool ok, const std::string & name, const char * claim) {
    ++(ok ? n_passed : n_failed);
    if (!ok) {
        printf("FAIL %s: %s\n", claim, name.c_str());
    }
    return ok;
}

template <typename F> static F proc(const char * name) {
    return (F) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(ggml_backend_get_device(backend)), name);
}

static bool same_bits(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size()*sizeof(float)) == 0;
}

typedef bool (*set_t)(ggml_backend_t, const rkv_staging_params *, const rkv_staging_need *);

// Slots for a tail. False when there is no memory for them.
static bool take_slots(rkv_schedule schedule, uint32_t depth, uint64_t row_bytes, uint64_t cells, uint64_t n_layer, uint32_t tile) {
    const rkv_staging_params params = { schedule, depth, 128, RKV_TAIL_ENGINE_STREAM, 0 };
    const rkv_staging_need   need   = { tile, row_bytes, row_bytes, cells, cells*n_layer, nullptr };
    return proc<set_t>(RKV_STAGING_SET_PROC)(backend, &params, &need);
}

// Tails that were read. They go once there are other slots, so that nothing is on its way any more that was given ahead.
static std::vector<ggml_backend_buffer_t> tails_read;

static void free_tails() {
    static uint32_t depth = 20; // as nobody else has
    depth = 41 - depth;
    GGML_ASSERT(take_slots(RKV_SCHEDULE_RING, depth, 64, 64, 1, 32));
    for (ggml_backend_buffer_t buffer : tails_read) {
        ggml_backend_buffer_free(buffer);
    }
    tails_read.clear();
}

//
// one node
//

// Of f32 sums with a card's fast exponentials; and of upstream's kernels for many queries, which compute in f16.
static constexpr double ERROR_MAX      = 2e-5;
static constexpr double ERROR_MAX_MANY = 1e-2;

static void run_case(const attn_case & c) {
    const bool     many = c.n_q > 16;
    const attn_rig rig(c, uint32_t(c.d_k*131 + c.n_q*17 + c.n_kv + int(c.mask)));
    device_run how;
    how.tail   = tail_buft;
    how.keep   = &tails_read;
    how.poison = !many; // upstream's kernels read cells that nobody sees
    const std::vector<float> whole = rig.run_on(backend, how);
    if (whole.empty()) {
        printf("SKIP the device does not compute %s\n", c.name().c_str());
        n_skipped++;
        return;
    }
    check(std::all_of(whole.begin(), whole.end(), [](float f) { return std::isfinite(f); }), c.name(), "the result is finite");
    for (int64_t n_win : std::set<int64_t>{ 0, c.tile, int64_t(c.n_kv)/2/c.tile*c.tile, int64_t(c.n_kv - 1)/c.tile*c.tile }) {
        how.n_win = n_win;
        check(same_bits(whole, rig.run_on(backend, how)), c.name() + " window " + std::to_string(n_win), "the bits do not depend on the window");
    }
    free_tails();
    const double error = relative_error(whole, rig.reference());
    double &     most  = many ? worst_many : worst;
    most = std::max(most, error);
    if (!check(error <= (many ? ERROR_MAX_MANY : ERROR_MAX), c.name(), "the result is that of f64")) {
        printf("     %.3e\n", error);
    }
}

static void attention() {
    const std::pair<int, int> sizes[] = { { 40, 40 }, { 64, 64 }, { 72, 72 }, { 80, 80 }, { 96, 96 }, { 112, 112 }, { 128, 128 },
                                          { 192, 128 }, { 256, 256 }, { 512, 512 }, { 576, 512 } };
    for (const auto & [d_k, d_v] : sizes) {
        for (int n_q : { 1, 2, 16, 33 }) {
            attn_case c;
            c.d_k    = d_k;
            c.d_v    = d_v;
            c.n_q    = n_q;
            c.n_kv   = 512;
            c.tile   = 64;
            c.n_head = 16;
            c.v_in_k = d_k == 576;
            c.n_head_kv = c.v_in_k ? 1 : 2;
            run_case(c);
        }
    }
    const ggml_type types[] = { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1 };
    for (ggml_type k : types) {
        for (ggml_type v : types) {
            attn_case c;
            c.type_k = k;
            c.type_v = v;
            c.n_q    = k == v ? 33 : 3;
            c.n_kv   = 256;
            c.d_k = c.d_v = 128;
            run_case(c);
            if (k == v) {
                c.n_q = 1;
                run_case(c);
            }
        }
    }
    for (mask_kind mask : { mask_kind::none, mask_kind::padded, mask_kind::holes, mask_kind::random, mask_kind::first_dead, mask_kind::last_dead,
                            mask_kind::one_low, mask_kind::of_heads }) {
        for (float sink : { NAN, 0.5f }) {
            attn_case c;
            c.mask = mask;
            c.sink = sink;
            c.n_q  = 4;
            run_case(c);
        }
    }
    for (int n_stream : { 1, 3 }) {
        for (int n_q : { 1, 40 }) {
            attn_case c;
            c.n_stream = n_stream;
            c.n_q      = n_q;
            c.n_kv     = 768;
            c.tile     = 128;
            run_case(c);
            c.softcap = 30.0f;
            c.d_k = c.d_v = 128;
            run_case(c);
            c.softcap  = 0.0f;
            c.max_bias = 8.0f;
            c.mask     = mask_kind::distance;
            run_case(c);
        }
    }
    attn_case rounds; // of partials, more than are kept at once
    rounds.n_kv   = 8192 + 32;
    rounds.n_head = 32;
    rounds.n_q    = 16;
    rounds.d_k = rounds.d_v = 128;
    run_case(rounds);
}

//
// writes
//

// Bytes of a cache after one write: as one tensor, or in two parts and put together.
static std::vector<uint8_t> written(ggml_type type, ggml_type idx, const std::vector<float> & rows, const std::vector<int64_t> & idxs, int64_t n_embd,
        int64_t window, int64_t n_kv, int64_t n_stream, bool & can) {
    const bool split = window < n_kv;
    ggml_context_ptr device(ggml_init({ 8*ggml_tensor_overhead(), nullptr, true }));
    ggml_context_ptr host(ggml_init({ 8*ggml_tensor_overhead(), nullptr, true }));
    ggml_tensor * cache = ggml_new_tensor_3d(device.get(), type, n_embd, window, n_stream);
    ggml_tensor * tail  = split ? ggml_new_tensor_3d(host.get(), type, n_embd, n_kv - window, n_stream) : nullptr;
    ggml_tensor * src   = ggml_new_tensor_2d(device.get(), GGML_TYPE_F32, n_embd, int64_t(idxs.size()));
    ggml_tensor * at    = ggml_new_tensor_1d(device.get(), idx, int64_t(idxs.size()));
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(device.get(), ggml_backend_get_default_buffer_type(backend)));
    ggml_backend_buffer_ptr tails(split ? ggml_backend_alloc_ctx_tensors_from_buft(host.get(), tail_buft) : nullptr);
    ggml_backend_buffer_clear(buffer.get(), 0);
    if (tails) {
        ggml_backend_buffer_clear(tails.get(), 0);
    }
    ggml_backend_tensor_set(src, rows.data(), 0, ggml_nbytes(src));
    const std::vector<int32_t> narrow(idxs.begin(), idxs.end());
    ggml_backend_tensor_set(at, idx == GGML_TYPE_I64 ? (const void *) idxs.data() : narrow.data(), 0, ggml_nbytes(at));

    ggml_context_ptr graph_ctx(ggml_init({ 8*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true }));
    ggml_tensor *    flat = ggml_reshape_2d(graph_ctx.get(), cache, n_embd, window*n_stream);
    ggml_tensor *    node = ggml_set_rows(graph_ctx.get(), flat, src, at);
    if (split) {
        node->src[RKV_SET_ROWS_SRC_TAIL] = tail;
        node->op_params[RKV_SET_ROWS_PARAM_WINDOW]  = int32_t(window);
        node->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] = int32_t(n_kv);
    }
    can = ggml_backend_supports_op(backend, node);
    if (!can) {
        return {};
    }
    ggml_cgraph * graph = ggml_new_graph(graph_ctx.get());
    ggml_build_forward_expand(graph, node);
    ggml_gallocr_ptr galloc(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
    GGML_ASSERT(ggml_gallocr_alloc_graph(galloc.get(), graph));
    ggml_backend_graph_compute(backend, graph);

    const size_t         row = cache->nb[1];
    std::vector<uint8_t> all(size_t(n_kv)*n_stream*row);
    for (int64_t s = 0; s < n_stream; ++s) {
        uint8_t * to = all.data() + s*n_kv*row;
        ggml_backend_tensor_get(cache, to, s*window*row, window*row);
        if (split) {
            ggml_backend_tensor_get(tail, to + window*row, s*(n_kv - window)*row, (n_kv - window)*row);
        }
    }
    return all;
}

static void writes() {
    constexpr int64_t N_EMBD = 320, N_KV = 96, N_STREAM = 2;
    std::mt19937 rng(11);
    std::normal_distribution<float> dist;
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL }) {
        for (ggml_type idx : { GGML_TYPE_I64, GGML_TYPE_I32 }) {
            for (int64_t n_rows : { int64_t(1), int64_t(130) }) {
                std::vector<int64_t> idxs(N_KV*N_STREAM);
                for (size_t i = 0; i < idxs.size(); ++i) {
                    idxs[i] = int64_t(i);
                }
                std::shuffle(idxs.begin(), idxs.end(), rng);
                idxs.resize(n_rows);
                std::vector<float> rows(N_EMBD*n_rows);
                std::generate(rows.begin(), rows.end(), [&] { return dist(rng); });

                bool can = false;
                const auto whole = written(type, idx, rows, idxs, N_EMBD, N_KV, N_KV, N_STREAM, can);
                const std::string name = std::string(ggml_type_name(type)) + ", indices of " + ggml_type_name(idx) + ", rows " + std::to_string(n_rows);
                if (!can) {
                    printf("SKIP the device does not write %s\n", name.c_str());
                    n_skipped++;
                    continue;
                }
                for (int64_t window : { int64_t(1), int64_t(32), int64_t(95) }) {
                    const auto parts = written(type, idx, rows, idxs, N_EMBD, window, N_KV, N_STREAM, can);
                    check(can && parts == whole, name + ", window " + std::to_string(window), "rows in two parts have the bytes of upstream's write");
                }
            }
        }
    }
}

//
// the ring
//

static rkv_staging_totals totals() {
    rkv_staging_totals t = {};
    proc<void (*)(ggml_backend_t, rkv_staging_totals *)>(RKV_STAGING_TOTALS_PROC)(backend, &t);
    return t;
}

static void ring_of(ggml_type type, int64_t window, uint32_t depth, rkv_schedule schedule) {
    const std::string name = std::string(ggml_type_name(type)) + ", window " + std::to_string(window) + ", depth " + std::to_string(depth) +
        (schedule == RKV_SCHEDULE_OP ? ", in the node" : "");
    const uint64_t row   = ggml_row_size(type, decoder::D*decoder::N_HEAD_KV);
    const uint64_t cells = uint64_t(decoder::N_KV - window);
    if (!check(take_slots(schedule, depth, row, cells, decoder::N_LAYER, decoder::TILE), name, "the device has memory for the slots")) {
        return;
    }
    const rkv_staging_totals before = totals();
    decoder resident(backend, tail_buft, type, decoder::N_KV);
    decoder spilled(backend, tail_buft, type, window);
    std::mt19937 rng(depth*31 + uint32_t(window));
    std::normal_distribution<float> dist;
    bool same = true;
    int  live = 0;
    for (int i = 0; i < 40; ++i) {
        const int n_new = live < window + 150 ? 96 : i%7 == 3 ? 5 : 1;
        std::vector<float> x(decoder::numbers(n_new));
        std::generate(x.begin(), x.end(), [&] { return dist(rng); });
        same = same && same_bits(resident.step(x, n_new, live), spilled.step(x, n_new, live));
        live += n_new;
        if (i%9 == 8) {
            std::vector<uint8_t> bytes(spilled.row_bytes(), uint8_t(0x21 + i)); // any type's finite numbers
            const int il = int(rng()%decoder::N_LAYER);
            const int64_t cell = int64_t(rng()%uint32_t(live));
            resident.change(il, cell, bytes);
            spilled.change(il, cell, bytes);
        }
        if (i%11 == 10) {
            live -= 3; // written again by the next step
        }
    }
    check(same, name, "the bits are those of the resident cache");
    const rkv_staging_totals after = totals();
    free_tails(); // before those of `spilled` go
    check(after.bytes > before.bytes, name, "tiles were brought");
    check(schedule == RKV_SCHEDULE_OP || (after.tiles_early > before.tiles_early && after.tiles_kept > before.tiles_kept), name, "tiles ran ahead of their layer and of their step");
}

static void ring() {
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_Q8_0 }) {
        for (int64_t window : { int64_t(64), int64_t(512) }) {
            for (uint32_t depth : { 1u, 3u, 9u }) {
                ring_of(type, window, depth, RKV_SCHEDULE_RING);
            }
            ring_of(type, window, 2, RKV_SCHEDULE_OP);
        }
    }
}

int main(int argc, char ** argv) {
    ggml_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_WARN) {
            fputs(text, stderr);
        }
    }, nullptr);
    ggml_backend_load_all();
    ggml_backend_dev_t dev = argc == 2 ? ggml_backend_dev_by_name(argv[1]) : nullptr;
    if (!dev) {
        fprintf(stderr, argc == 2 ? "there is no device %s\n" : "usage: test-rkv-device DEVICE\n", argc == 2 ? argv[1] : "");
        return 2;
    }
    backend = ggml_backend_dev_init(dev, nullptr);
    const auto tail_of = backend ? proc<ggml_backend_buffer_type_t (*)(ggml_backend_dev_t)>(RKV_TAIL_BUFT_PROC) : nullptr;
    if (!tail_of) {
        fprintf(stderr, "device %s does not bring tiles\n", argv[1]);
        return 2;
    }
    tail_buft = tail_of(dev);

    writes();
    attention();
    ring();
    ggml_backend_free(backend);

    printf("largest error %.2e, of many queries %.2e; %d skipped\n", worst, worst_many, n_skipped);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
