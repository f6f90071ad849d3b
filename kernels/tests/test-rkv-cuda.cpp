// The CUDA backend's kernels, as far as they run without a device: the bodies of all their threads, in place of a block.
//
// Their bits depend neither on the window, nor on strides, nor on which thread runs first; what they give is as close to f64 as f32 allows;
// cells that nobody sees are not read.

#include "rkv-cuda-bytes.h"
#include "rkv-split-rows.h"
#include "rkv-test-cpu.h"
#include "test-rkv-attn-rig.h"
#include "test-rkv-cuda-host.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <tuple>
#include <utility>

static ggml_backend_t backend;
static int    n_passed = 0;
static int    n_failed = 0;
static double worst    = 0.0;

static bool check(bool ok, const std::string & name, const char * claim) {
    ++(ok ? n_passed : n_failed);
    if (!ok) {
        printf("FAIL %s: %s\n", claim, name.c_str());
    }
    return ok;
}

static bool same_bits(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size()*sizeof(float)) == 0;
}

static attn_run on_host(bool backwards) {
    attn_run how;
    how.compute = [backwards](ggml_tensor * node) { host_attend(node, backwards); };
    return how;
}

// Of f32 sums over a few hundred cells.
static constexpr double ERROR_MAX = 2e-6;

static void run_case(const attn_case & c) {
    const attn_rig rig(c, uint32_t(c.d_k*131 + c.n_q*17 + c.n_kv + int(c.mask)));
    const std::vector<float> whole = rig.run(backend, on_host(false));

    check(std::all_of(whole.begin(), whole.end(), [](float f) { return std::isfinite(f); }), c.name(), "the result is finite");
    check(same_bits(whole, rig.run(backend, on_host(true))), c.name(), "the bits do not depend on which thread runs first");
    std::set<int64_t> windows = { 0, c.tile, 3*c.tile, int64_t(c.n_kv - 1)/c.tile*c.tile };
    for (int64_t n_win : windows) {
        if (n_win > c.n_kv) {
            continue;
        }
        attn_run how = on_host(false);
        how.n_win = n_win;
        check(same_bits(whole, rig.run(backend, how)), c.name(), "the bits do not depend on the window");
    }
    attn_run tail = on_host(false);
    tail.as_tail = true;
    check(same_bits(whole, rig.run(backend, tail)), c.name(), "the bits do not depend on the strides");

    const double error = relative_error(whole, rig.reference());
    worst = std::max(worst, error);
    if (!check(error <= ERROR_MAX, c.name(), "the result is that of f64")) {
        printf("     %.3e\n", error);
    }
}

static void shapes() {
    const std::pair<int, int> sizes[] = { { 40, 40 }, { 64, 64 }, { 72, 72 }, { 80, 80 }, { 96, 96 }, { 112, 112 }, { 128, 128 },
                                          { 192, 128 }, { 256, 256 }, { 320, 256 }, { 512, 512 }, { 576, 512 } };
    for (const auto & [d_k, d_v] : sizes) {
        for (int n_q : { 1, 3, 16 }) {
            attn_case c;
            c.d_k    = d_k;
            c.d_v    = d_v;
            c.n_q    = n_q;
            c.v_in_k = d_k == 576;
            if (c.v_in_k) {
                c.n_head    = 5;
                c.n_head_kv = 1;
            }
            run_case(c);
        }
    }
    for (const auto & [n_head, n_head_kv] : { std::pair<int, int>{ 2, 2 }, { 4, 2 }, { 8, 2 }, { 9, 3 }, { 16, 1 } }) {
        for (int n_stream : { 1, 3 }) {
            attn_case c;
            c.n_head    = n_head;
            c.n_head_kv = n_head_kv;
            c.n_stream  = n_stream;
            run_case(c);
        }
    }
    for (int tile : { 32, 96, 128, 160, 512 }) {
        attn_case c;
        c.tile = tile;
        c.n_kv = 700;
        run_case(c);
    }
}

static void types() {
    const ggml_type all[] = { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1 };
    for (ggml_type k : all) {
        for (ggml_type v : all) {
            attn_case c;
            c.type_k = k;
            c.type_v = v;
            c.n_q    = k == v ? 5 : 1;
            c.d_k = c.d_v = 96;
            run_case(c);
        }
    }
}

static void masks() {
    for (mask_kind mask : { mask_kind::none, mask_kind::causal, mask_kind::padded, mask_kind::holes, mask_kind::stairs, mask_kind::random,
                            mask_kind::first_dead, mask_kind::last_dead, mask_kind::all_dead, mask_kind::one_low, mask_kind::of_heads }) {
        for (float sink : { NAN, 0.5f, 30.0f, -30.0f }) {
            attn_case c;
            c.mask = mask;
            c.sink = sink;
            c.n_q  = 4;
            run_case(c);
        }
    }
    for (float cap : { 0.0f, 30.0f }) {
        attn_case c;
        c.softcap = cap;
        c.k_size  = 4.0f;
        c.n_q     = 2;
        run_case(c);
        c.mask     = mask_kind::distance;
        c.max_bias = 8.0f;
        c.n_head   = 12;
        run_case(c);
    }
}

// More tiles than are kept at once: merged in several rounds.
static void rounds() {
    attn_case c;
    c.n_head = c.n_head_kv = 1;
    c.d_k = c.d_v = 8;
    c.tile = 1;
    c.n_kv = 2*rkv::MERGE_TILES_MAX + 100;
    c.mask = mask_kind::random;
    run_case(c);
}

static void faults_show() {
    attn_case c;
    c.n_kv = 200;
    const attn_rig rig(c, 7);
    attn_run how = on_host(false);
    how.n_win = 64;
    const std::vector<float> right = rig.run(backend, how);
    how.compute = [](ggml_tensor * node) { host_attend(node, false, RKV_FAULT_SWAP_MERGE); };
    check(!same_bits(right, rig.run(backend, how)), c.name(), "tiles that are merged in the wrong order show");
    how = on_host(false);
    how.n_win     = 64;
    how.flip_cell = 150;
    check(!same_bits(right, rig.run(backend, how)), c.name(), "a flipped bit of the tail shows");
}

// The window by the kernels' bodies, the tail by the CPU backend's host engine.
static void beside_the_host() {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    const auto get = (const rkv_host_engine_api * (*)()) ggml_backend_reg_get_proc_address(reg, RKV_HOST_ENGINE_PROC);
    if (!check(get != nullptr, "CPU", "the CPU backend has a host engine")) {
        return;
    }
    const rkv_host_engine_api & api    = *get();
    rkv_host_engine *           engine = api.create(3);
    for (const auto & [type_k, type_v] : { std::pair(GGML_TYPE_F16, GGML_TYPE_F16), std::pair(GGML_TYPE_Q8_0, GGML_TYPE_Q4_0), std::pair(GGML_TYPE_BF16, GGML_TYPE_F16) }) {
        for (const auto & [n_q, n_stream, n_kv] : { std::tuple(1, 1, 700), std::tuple(4, 1, 300), std::tuple(1, 3, 200) }) {
            attn_case c;
            c.type_k   = type_k;
            c.type_v   = type_v;
            c.n_q      = n_q;
            c.n_stream = n_stream;
            c.n_kv     = n_kv;
            const attn_rig rig(c, uint32_t(n_kv + n_q));
            attn_run how;
            how.n_win   = 64;
            how.compute = [&](ggml_tensor * node) { host_attend_beside(node, api, engine, true); };
            const std::vector<float> found = rig.run(backend, how);
            const double error = relative_error(found, rig.reference());
            worst = std::max(worst, error);
            check(error <= ERROR_MAX, c.name(), "window and tail by two engines are what f64 says");
            check(same_bits(found, rig.run(backend, how)), c.name(), "the bits do not depend on which thread is first");
            how.compute = [&](ggml_tensor * node) { host_attend_beside(node, api, engine, false); };
            check(!same_bits(found, rig.run(backend, how)), c.name(), "partials that were not waited for show");
        }
    }
    api.destroy(engine);
}

// Every row in the window's types, and attention over these: rows of the window as they were, those of the tail rounded once more.
static void mixed_in_one(const attn_case & c, const attn_rig & rig) {
    constexpr double ROUNDED = 1e-2; // bf16 keeps eight bits
    bool     can = false;
    attn_run how;
    how.n_win   = c.tail_from;
    how.poison  = false;
    how.compute = [&can](ggml_tensor * node) {
        const rkv::attn_args a = rkv::attn_args_read(node);
        can = rkv::can_gather(a);
        if (can) {
            host_attend_in_one(node);
        }
    };
    const std::vector<float> found = rig.run(backend, how);
    const bool quantised = ggml_is_quantized(c.type_k) || ggml_is_quantized(c.type_v);
    check(can == !quantised, c.name(), "a tail is turned into 16 or 32 bits, and into nothing smaller");
    if (can) {
        const double error = relative_error(found, rig.reference());
        check(error <= (c.type_k == GGML_TYPE_F32 ? ERROR_MAX : ROUNDED), c.name(), "rows of both parts are in one");
    }
}

// A tail of other types than its window: decode reads both as they lie, and a long batch's rows are turned into the window's types.
static void mixed() {
    const std::tuple<ggml_type, ggml_type, ggml_type, ggml_type> all[] = {
        { GGML_TYPE_F16, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q8_0 }, { GGML_TYPE_F16, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 },
        { GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }, { GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0 },
        { GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1 },
    };
    for (const auto & [type_k, type_v, tail_k, tail_v] : all) {
        for (const auto & [n_q, n_stream] : { std::pair(1, 1), std::pair(4, 3) }) {
            attn_case c;
            c.type_k    = type_k;
            c.type_v    = type_v;
            c.tail_k    = tail_k;
            c.tail_v    = tail_v;
            c.tail_from = 64;
            c.n_q       = n_q;
            c.n_stream  = n_stream;
            c.n_kv      = 200;
            const attn_rig rig(c, uint32_t(n_q + type_k*7 + tail_k));
            attn_run how = on_host(false);
            how.n_win = c.tail_from;
            const double error = relative_error(rig.run(backend, how), rig.reference());
            worst = std::max(worst, error);
            check(error <= ERROR_MAX, c.name(), "each part is read in its own types");
            mixed_in_one(c, rig);
        }
    }
}

// The same numbers as ggml has for each type.
static void numbers() {
    std::mt19937 rng(3);
    std::normal_distribution<float> dist;
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0 }) {
        constexpr int N = 256;
        float x[N];
        for (float & f : x) {
            f = dist(rng);
        }
        alignas(16) char row[N*sizeof(float)];
        if (type == GGML_TYPE_F32) {
            memcpy(row, x, sizeof(x));
        } else {
            ggml_quantize_chunk(type, x, row, 0, 1, N, nullptr);
            ggml_get_type_traits(type)->to_float(row, x, N);
        }
        bool same = true;
        for (int i = 0; i < N; i += rkv::ATTN_VEC) {
            float y[rkv::ATTN_VEC];
            rkv::load8<rkv::ATTN_ANY_TYPE>(type, row, i, y);
            for (int j = 0; j < rkv::ATTN_VEC; ++j) {
                same = same && std::fabs(y[j] - x[i + j]) <= 1e-6f*std::fabs(x[i + j]);
            }
        }
        check(same, ggml_type_name(type), "eight channels are read as ggml reads them");
    }
}

// And put down as ggml puts them down.
static void stored() {
    std::mt19937 rng(5);
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }) {
        bool same = true;
        for (int i = 0; i < 20000; ++i) {
            float x[rkv::ATTN_VEC];
            for (float & f : x) {
                const uint32_t bits = uint32_t(rng());
                memcpy(&f, &bits, sizeof(f));
                f = std::isfinite(f) && std::fabs(f) < 60000.0f ? f : 0.5f;
            }
            alignas(16) char row[rkv::ATTN_VEC*sizeof(float)], expected[sizeof(row)];
            rkv::store8(type, row, 0, x);
            switch (type) {
                case GGML_TYPE_F16:  ggml_fp32_to_fp16_row(x, (ggml_fp16_t *) expected, rkv::ATTN_VEC); break;
                case GGML_TYPE_BF16: ggml_fp32_to_bf16_row_ref(x, (ggml_bf16_t *) expected, rkv::ATTN_VEC); break;
                default:             memcpy(expected, x, sizeof(x)); break;
            }
            same = same && memcmp(row, expected, rkv::ATTN_VEC*ggml_type_size(type)) == 0;
        }
        check(same, ggml_type_name(type), "eight channels are put down as ggml puts them down");
    }
}

// Every row of a cache goes to a row of its own, in the part that the window says.
static void split() {
    for (int64_t window : { 1, 32, 63 }) {
        constexpr int64_t N_KV = 64, N_STREAM = 3, ROW = 8;
        std::vector<char> parts[2] = { std::vector<char>(window*N_STREAM*ROW), std::vector<char>((N_KV - window)*N_STREAM*ROW) };
        const rkv::split_rows to = { parts[0].data(), parts[1].data(), ROW, ROW, window, N_KV - window, false };
        std::set<char *> seen;
        bool right = true;
        for (int64_t idx = 0; idx < N_KV*N_STREAM; ++idx) {
            char *     row     = to.row(idx);
            const auto & part  = parts[idx%N_KV >= window];
            right = right && row >= part.data() && row + ROW <= part.data() + part.size() && (row - part.data())%ROW == 0 && seen.insert(row).second;
        }
        check(right, std::to_string(window), "each row has a place of its own in its part");
    }
}

static void pulls() {
    for (const auto & [width, stride, word] : { std::tuple<int64_t, int64_t, int>{ 64, 128, 16 }, { 68, 136, 4 }, { 34, 34, 2 }, { 34, 70, 2 }, { 33, 40, 1 } }) {
        constexpr int64_t ROWS = 5;
        alignas(16) char src[1024];
        alignas(16) char dst[1024] = {};
        for (size_t i = 0; i < sizeof(src); ++i) {
            src[i] = char(i*7 + 1);
        }
        const rkv::pull_rows a = { dst, src, stride, width, ROWS };
        bool right = rkv::pull_word_bytes(a) == word;
        for (int64_t i = 0; i < a.words(word); ++i) {
            switch (word) {
                case 16: rkv::pull_word<rkv::words4>(a, i); break;
                case 4:  rkv::pull_word<uint32_t>(a, i); break;
                case 2:  rkv::pull_word<uint16_t>(a, i); break;
                default: rkv::pull_word<uint8_t>(a, i); break;
            }
        }
        for (int64_t r = 0; r < ROWS; ++r) {
            right = right && memcmp(dst + r*width, src + r*stride, width) == 0;
        }
        right = right && dst[ROWS*width] == 0;
        check(right, std::to_string(width), "rows are put one behind the other");
    }
}

int main() {
    backend = test_cpu_init();
    numbers();
    stored();
    split();
    pulls();
    shapes();
    types();
    mixed();
    masks();
    rounds();
    faults_show();
    beside_the_host();
    ggml_backend_free(backend);

    printf("largest error %.2e\n", worst);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
