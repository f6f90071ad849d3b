// The tiled attention node of the CPU backend: its bits depend neither on the window nor on the threads, and it is at
// least as close to an f64 reference as stock's attention.

#include "rkv-attn-node.h"
#include "rkv-test-cpu.h"
#include "test-rkv-attn-rig.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

static ggml_backend_t backend;
static int n_passed = 0;
static int n_failed = 0;
static double worst_ratio = 0.0;

static bool check(bool ok, const attn_case & c, const char * claim) {
    ++(ok ? n_passed : n_failed);
    if (!ok) {
        printf("FAIL %s: %s\n", claim, c.name().c_str());
    }
    return ok;
}

static bool same_bits(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size()*sizeof(float)) == 0;
}

static bool all_finite(const std::vector<float> & x) {
    return std::all_of(x.begin(), x.end(), [](float f) { return std::isfinite(f); });
}

// Every border that a window can have: none, one tile, two, the last before the end, all.
static std::set<int64_t> windows_of(const attn_case & c) {
    std::set<int64_t> w = { 0, c.tile, 2*c.tile, c.n_kv/2/c.tile*c.tile, (c.n_kv - 1)/c.tile*c.tile, c.n_kv };
    for (auto it = w.begin(); it != w.end();) {
        it = *it > c.n_kv ? w.erase(it) : std::next(it);
    }
    return w;
}

// The bound of an error when stock's own is next to nothing: a few units in the last place of an f32.
static constexpr double TINY = 3e-7;

static void run_case(const attn_case & c, const std::vector<int> & n_threads) {
    const attn_rig rig(c, (uint32_t) (c.d_k*131 + c.n_q*17 + c.n_kv + (int) c.mask));
    const std::vector<float> whole = rig.run(backend, {});

    check(all_finite(whole), c, "the result is finite");
    for (int64_t n_win : windows_of(c)) {
        for (int n : n_threads) {
            attn_run how;
            how.n_win     = n_win;
            how.n_threads = n;
            check(same_bits(whole, rig.run(backend, how)), c, "the bits depend neither on the window nor on the threads");
        }
    }

    attn_run host;
    host.as_tail = true;
    check(same_bits(whole, rig.run(backend, host)), c, "the bits do not depend on the strides");

    attn_run stock;
    stock.stock  = true;
    stock.poison = false;
    const std::vector<double> ref = rig.reference();
    const double ours   = relative_error(whole, ref);
    const double theirs = relative_error(rig.run(backend, stock), ref);
    worst_ratio = std::max(worst_ratio, ours/(theirs + TINY));
    if (!check(ours <= theirs + TINY, c, "the error is no larger than stock's")) {
        printf("     %.3e, stock %.3e\n", ours, theirs);
    }
}

// Rows of 576 are of a compressed kind: one KV head, whose V lies in K.
static attn_case case_of_size(int d_k, int d_v, int n_q) {
    attn_case c;
    c.d_k = d_k;
    c.d_v = d_v;
    c.n_q = n_q;
    c.v_in_k = d_k == 576;
    if (c.v_in_k) {
        c.n_head    = 5;
        c.n_head_kv = 1;
    }
    return c;
}

static void head_sizes_and_query_counts(bool full) {
    const std::pair<int, int> sizes[] = { { 40, 40 }, { 64, 64 }, { 72, 72 }, { 80, 80 }, { 96, 96 }, { 112, 112 },
                                          { 128, 128 }, { 192, 128 }, { 256, 256 }, { 576, 512 }, { 100, 36 } };
    for (const auto & [d_k, d_v] : sizes) {
        for (int n_q : { 1, 2, 7, 16, 33 }) {
            const attn_case c = case_of_size(d_k, d_v, n_q);
            run_case(c, full ? std::vector<int>{ 1, 2, 3, 5 } : std::vector<int>{ 1, 3 });
        }
    }
}

// Rows of quants that are used as they lie, of every length that has whole blocks.
static void head_sizes_of_quants() {
    const std::pair<int, int> sizes[] = { { 32, 32 }, { 64, 64 }, { 96, 64 }, { 128, 128 }, { 192, 128 }, { 576, 512 } };
    for (const auto & [d_k, d_v] : sizes) {
        for (int n_q : { 1, 2, 4, 13 }) {
            attn_case c = case_of_size(d_k, d_v, n_q);
            c.n_kv   = 333;
            c.tile   = 96;
            c.type_k = c.type_v = GGML_TYPE_Q8_0;
            run_case(c, { 1, 3 });
        }
    }
}

// Rounded to whole numbers or not, a query's size is not lost, and neither is one element among larger ones.
static void queries_of_any_size() {
    for (float size : { 0.0f, 1e-38f, 1e-20f, 1e20f, 1e-3f }) {
        for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_Q8_0 }) {
            attn_case c;
            c.d_k = c.d_v = 64;
            c.type_k = c.type_v = type;
            c.scale = size > 1.0f ? 1e-20f : 0.125f;
            attn_rig rig(c, 1);
            for (size_t i = 0; i < rig.q.size(); ++i) {
                rig.q[i] *= i % 7 == 0 && size < 1.0f ? 1.0f : size;
            }
            const double error = relative_error(rig.run(backend, {}), rig.reference());
            if (!check(error < 1e-6, c, "a query of any size has its scores")) {
                printf("     %g: %.3e\n", size, error);
            }
        }
    }
}

static void types(bool full) {
    const ggml_type all[] = { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                              GGML_TYPE_Q5_0, GGML_TYPE_Q5_1 };
    for (ggml_type k : all) {
        for (ggml_type v : all) {
            if (!full && k != v && !(k == GGML_TYPE_Q8_0 || v == GGML_TYPE_Q8_0)) {
                continue;
            }
            for (int n_q : { 1, 5, 33 }) {
                attn_case c;
                c.type_k = k;
                c.type_v = v;
                c.n_q    = n_q;
                c.d_k = c.d_v = 96;
                run_case(c, { 2 });
            }
        }
    }
}

static void masks_and_sinks() {
    for (mask_kind mask : { mask_kind::none, mask_kind::causal, mask_kind::padded, mask_kind::holes, mask_kind::stairs,
                            mask_kind::random, mask_kind::first_dead, mask_kind::last_dead, mask_kind::all_dead,
                            mask_kind::one_low, mask_kind::of_heads }) {
        for (float sink : { NAN, -5.0f, 0.0f, 8.0f }) {
            for (int n_q : { 1, 7, 33 }) {
                attn_case c;
                c.mask = mask;
                c.sink = sink;
                c.n_q  = n_q;
                c.d_k = c.d_v = 80;
                run_case(c, { 1, 2 });
            }
        }
    }
}

static void parameters() {
    for (float softcap : { 0.0f, 5.0f, 50.0f }) {
        for (float max_bias : { 0.0f, 8.0f }) {
            for (int n_q : { 1, 3, 40 }) {
                attn_case c;
                c.n_head    = 12;
                c.n_head_kv = 4;
                c.softcap   = softcap;
                c.max_bias  = max_bias;
                c.mask      = max_bias > 0.0f ? mask_kind::distance : mask_kind::causal;
                c.scale     = 0.4f;
                c.n_q       = n_q;
                run_case(c, { 1, 5 });
            }
        }
    }
}

static void shapes(bool full) {
    attn_case c;
    c.n_stream = 3;
    for (int n_q : { 1, 2, 33 }) {
        c.n_q = n_q;
        run_case(c, { 1, 2, 3, 5 });
    }
    attn_case multi; // no groups; and one KV head for all
    for (int n_head_kv : { 5, 1 }) {
        multi.n_head    = 5;
        multi.n_head_kv = n_head_kv;
        for (int n_q : { 1, 3, 20 }) {
            multi.n_q = n_q;
            run_case(multi, { 1, 3 });
        }
    }
    for (int n_kv : { 1, 31, 32, 33, 64, 256, 300 }) {
        attn_case border;
        border.n_kv = n_kv;
        border.mask = mask_kind::padded;
        run_case(border, { 1, 2 });
        border.n_q = 18;
        run_case(border, { 1, 2 });
    }
    for (int tile : { 48, 128, 4096 }) {
        attn_case t;
        t.tile = tile;
        t.n_kv = 700;
        t.n_q  = 3;
        run_case(t, { 1, 2 });
        t.n_q = 65;
        run_case(t, { 1, 2 });
    }
    attn_case prompt;
    prompt.n_q  = 512;
    prompt.n_kv = 600;
    prompt.tile = 64;
    prompt.n_head    = full ? 12 : 3;
    prompt.n_head_kv = full ? 4 : 1;
    run_case(prompt, { 1, 2, 5 });
    prompt.d_k = prompt.d_v = 128;
    prompt.type_k = prompt.type_v = GGML_TYPE_Q8_0;
    run_case(prompt, { 2 });
}

// More partials than the work buffer keeps at a time.
static void many_rounds() {
    attn_case c;
    c.n_head = 32;
    c.n_head_kv = 4;
    c.d_k = c.d_v = 128;
    c.n_q  = 16;
    c.n_kv = 1500;
    run_case(c, { 1, 2, 5 });
    c.n_stream = 3;
    c.n_kv     = 700;
    run_case(c, { 2 });
}

static void large_values_stay_finite() {
    for (int n_q : { 1, 33 }) {
        attn_case c;
        c.n_q    = n_q;
        c.k_size = 1000.0f; // q.k around 7e4 for d_k 64 and more in the tails
        c.v_size = 12000.0f;
        c.scale  = 1e-4f;
        run_case(c, { 1, 2 });
        c.type_k = c.type_v = GGML_TYPE_F32;
        c.v_size = 60000.0f;
        run_case(c, { 1, 2 });
    }
}

static void sink_is_counted_once() {
    for (float sink : { -5.0f, 0.0f, 8.0f }) {
        for (int n_q : { 1, 7, 33 }) {
            attn_case c;
            c.sink   = sink;
            c.n_q    = n_q;
            c.k_size = 0.0f;
            c.v_ones = true;
            c.mask   = mask_kind::none;
            c.n_kv   = 300;
            const attn_rig rig(c, 1);
            attn_run how;
            how.n_win = 128;
            const double expected = c.n_kv/(c.n_kv + std::exp((double) sink));
            bool ok = true;
            for (float x : rig.run(backend, how)) {
                ok = ok && std::fabs(x - expected) < 1e-5*expected;
            }
            check(ok, c, "the sink is counted once");
        }
    }
}

static void softcap_reaches_the_logits() {
    for (int n_q : { 1, 33 }) {
        attn_case c;
        c.n_q   = n_q;
        c.scale = 1.0f;
        const auto without = attn_rig(c, 1).run(backend, {});
        c.softcap = 5.0f;
        check(!same_bits(without, attn_rig(c, 1).run(backend, {})), c, "the soft-cap changes the result");
    }
}

static void masked_cells_behind_the_end_change_nothing() {
    for (int n_q : { 1, 7, 33 }) {
        attn_case c;
        c.n_q = n_q;
        const attn_rig rig(c, 1);
        attn_run longer;
        longer.extra = 75;
        check(same_bits(rig.run(backend, {}), rig.run(backend, longer)), c, "masked cells behind the end change nothing");
    }
}

static void a_nan_that_is_seen_is_not_hidden() {
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_Q8_0 }) {
        for (int n_q : { 1, 33 }) {
            attn_case c;
            c.n_q = n_q;
            c.d_k = c.d_v = 64;
            c.type_k = c.type_v = type;
            attn_rig rig(c, 1);
            for (size_t i = 0; i < rig.q.size(); i += c.d_k) {
                rig.q[i + i / c.d_k % c.d_k] = NAN; // one element of each row
            }
            const auto x = rig.run(backend, {});
            check(std::all_of(x.begin(), x.end(), [](float f) { return std::isnan(f); }), c, "a NaN query gives NaN");
        }
    }
}

// A fault must change what comes out, or the gates that inject it could never fail.
static void faults_are_seen() {
    for (int n_q : { 1, 7, 33 }) {
        attn_case c;
        c.n_q  = n_q;
        c.mask = mask_kind::padded;
        const attn_rig rig(c, 1);
        attn_run how;
        how.n_win = 32;
        const auto right = rig.run(backend, how);
        for (rkv_fault fault : { RKV_FAULT_DROP_TILE, RKV_FAULT_SWAP_MERGE, RKV_FAULT_STALE_TILE }) {
            rkv_fault_set(fault);
            const auto wrong = rig.run(backend, how);
            rkv_fault_set(RKV_FAULT_NONE);
            check(!same_bits(right, wrong) && all_finite(wrong), c, "an injected fault changes the result");
        }
        check(same_bits(right, rig.run(backend, how)), c, "without the fault the bits are back");
        how.flip_cell = 40;
        check(!same_bits(right, rig.run(backend, how)), c, "a flipped byte of the tail changes the result");
    }
}

static void counters_say_what_was_read() {
    for (int n_q : { 1, 33 }) {
        attn_case c;
        c.n_q  = n_q;
        c.mask = mask_kind::first_dead; // cells 58 .. 116 are live: tiles 1, 2, 3 of 4
        const attn_rig rig(c, 1);
        rkv_layer_counters counters = {};
        attn_run how;
        how.n_win     = 64;
        how.n_threads = 2;
        how.counters  = &counters;
        rig.run(backend, how);
        const uint64_t cell_bytes = (uint64_t) c.n_head_kv*(c.d_k + c.d_v)*2;
        check(counters.nodes == 1 && counters.tiles_window == 1 && counters.tiles_tail == 2 &&
              counters.partials_merged == 3u*c.n_head*n_q && counters.tail_bytes_read == 53*cell_bytes, c,
              "the counters say what was read");
        how.stock = true;
        how.n_win = -1;
        how.poison = false;
        rig.run(backend, how);
        check(counters.nodes == 1, c, "a stock node counts nothing");
    }
}

int main(int argc, char ** argv) {
    const bool full = argc > 1 && strcmp(argv[1], "--full") == 0;
    if (argc > 1 && !full) {
        fprintf(stderr, "usage: %s [--full]\n", argv[0]);
        return 2;
    }
    backend = test_cpu_init();

    head_sizes_and_query_counts(full);
    head_sizes_of_quants();
    queries_of_any_size();
    types(full);
    masks_and_sinks();
    parameters();
    shapes(full);
    many_rounds();
    large_values_stay_finite();
    sink_is_counted_once();
    softcap_reaches_the_logits();
    masked_cells_behind_the_end_change_nothing();
    a_nan_that_is_seen_is_not_hidden();
    faults_are_seen();
    counters_say_what_was_read();

    ggml_backend_free(backend);
    printf("worst error over stock's (plus %.0e): %.2f\n", TINY, worst_ratio);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
