// Moves of rows on the CPU backend against the same in f64, written plainly; and against stock's own RoPE.

#include "rkv-rope-node.h"
#include "rkv-test-cpu.h"

#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

static int n_passed = 0;
static int n_failed = 0;

static void expect(bool holds, const char * what, double found) {
    if (!holds) {
        printf("FAILED: %s: %g\n", what, found);
    }
    (holds ? n_passed : n_failed)++;
}

struct shape {
    int       head;
    int       n_head;
    int       rows;
    int       rotated;
    int       offset;
    bool      neox;
    ggml_type type;
    float     base;
    float     scale;
    float     ext;     // YaRN's share
    bool      factors;
    int       threads;
};

static constexpr int   N_CTX_ORIG = 4096;
static constexpr float BETA_FAST  = 32.0f;
static constexpr float BETA_SLOW  = 1.0f;

// The angle of pair i for one position: RoPE, with YaRN's mix of two frequencies.
static double frequency(const shape & s, int i, const std::vector<float> & factors) {
    const double plain  = std::pow(double(powf(s.base, -2.0f/s.rotated)), i)/(s.factors ? factors[i] : 1.0f);
    const double linear = s.scale*plain;
    if (s.ext == 0.0f) {
        return linear;
    }
    const auto corrected = [&](double beta) { return s.rotated*std::log(N_CTX_ORIG/(beta*2*M_PI))/(2*std::log(double(s.base))); };
    const double low  = std::max(0.0, std::floor(corrected(BETA_FAST)));
    const double high = std::min(s.rotated - 1.0, std::ceil(corrected(BETA_SLOW)));
    const double ramp = std::clamp((i - low)/std::max(0.001, high - low), 0.0, 1.0);
    const double mix  = (1.0 - ramp)*s.ext;
    return linear*(1.0 - mix) + plain*mix;
}

static void reference(const shape & s, std::vector<double> & x, const std::vector<int32_t> & moves, const std::vector<float> & factors) {
    for (int row = 0; row < s.rows; ++row) {
        for (int h = 0; h < s.n_head; ++h) {
            double * head = &x[(size_t(row)*s.n_head + h)*s.head + s.offset];
            for (int i = 0; i < s.rotated/2; ++i) {
                const double w = frequency(s, i, factors)*moves[row];
                double & a = head[s.neox ? i : 2*i];
                double & b = head[s.neox ? i + s.rotated/2 : 2*i + 1];
                const double a0 = a;
                a = a0*std::cos(w) - b*std::sin(w);
                b = a0*std::sin(w) + b*std::cos(w);
            }
        }
    }
}

// What the backend makes of the rows; `marked`: by our kernel.
static std::vector<float> turned(ggml_backend_t backend, const shape & s, const std::vector<float> & x, const std::vector<int32_t> & moves,
        const std::vector<float> & factors, bool marked) {
    ggml_init_params params = {};
    params.mem_size = 8*ggml_tensor_overhead() + ggml_graph_overhead();
    params.no_alloc = true;
    ggml_context_ptr ctx(ggml_init(params));

    ggml_tensor * k   = ggml_new_tensor_3d(ctx.get(), s.type, s.head, s.n_head, s.rows);
    ggml_tensor * pos = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, s.rows);
    ggml_tensor * ff  = s.factors ? ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, s.rotated/2) : nullptr;
    const float keep_length = s.ext != 0.0f ? 1.0f/(1.0f + 0.1f*logf(1.0f/s.scale)) : 1.0f;
    ggml_tensor * t = ggml_rope_ext_inplace(ctx.get(), k, pos, ff, s.rotated, s.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL,
            N_CTX_ORIG, s.base, s.scale, s.ext, keep_length, BETA_FAST, BETA_SLOW);
    if (s.offset) {
        ggml_rope_set_offset(t, s.offset);
    }
    if (marked) {
        t->op_params[RKV_ROPE_PARAM_MARK] = RKV_ROPE_MARK;
    }
    ggml_cgraph * gf = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(gf, t);
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx.get(), backend));

    std::vector<ggml_fp16_t> half(x.size());
    if (s.type == GGML_TYPE_F16) {
        ggml_fp32_to_fp16_row(x.data(), half.data(), int64_t(x.size()));
        ggml_backend_tensor_set(k, half.data(), 0, ggml_nbytes(k));
    } else {
        ggml_backend_tensor_set(k, x.data(), 0, ggml_nbytes(k));
    }
    ggml_backend_tensor_set(pos, moves.data(), 0, ggml_nbytes(pos));
    if (ff) {
        ggml_backend_tensor_set(ff, factors.data(), 0, ggml_nbytes(ff));
    }
    test_cpu_set_threads(backend, s.threads);
    ggml_backend_graph_compute(backend, gf);

    std::vector<float> res(x.size());
    if (s.type == GGML_TYPE_F16) {
        ggml_backend_tensor_get(k, half.data(), 0, ggml_nbytes(k));
        ggml_fp16_to_fp32_row(half.data(), res.data(), int64_t(res.size()));
    } else {
        ggml_backend_tensor_get(k, res.data(), 0, ggml_nbytes(k));
    }
    return res;
}

static double worst(const std::vector<float> & found, const std::vector<double> & expected) {
    double res = 0.0;
    for (size_t i = 0; i < found.size(); ++i) {
        res = std::max(res, std::abs(found[i] - expected[i])/std::max(1.0, std::abs(expected[i])));
    }
    return res;
}

static void one(ggml_backend_t backend, const shape & s, const std::vector<int32_t> & moves, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t(s.head)*s.n_head*s.rows);
    std::vector<float> factors(s.rotated/2);
    for (float & v : x) {
        v = normal(random);
        v = s.type == GGML_TYPE_F16 ? ggml_fp16_to_fp32(ggml_fp32_to_fp16(v)) : v;
    }
    for (float & f : factors) {
        f = 1.0f + std::abs(normal(random));
    }
    std::vector<double> expected(x.begin(), x.end());
    reference(s, expected, moves, factors);

    const auto ours = turned(backend, s, x, moves, factors, true);
    const double bound = s.type == GGML_TYPE_F16 ? 1.05/2048 : 2e-6;
    expect(worst(ours, expected) <= bound, "our kernel against f64", worst(ours, expected));

    bool stays = true;
    for (int row = 0; row < s.rows; ++row) {
        const size_t width = size_t(s.head)*s.n_head;
        stays = stays && (moves[row] != 0 || memcmp(&ours[row*width], &x[row*width], width*sizeof(float)) == 0);
    }
    expect(stays, "rows that do not move keep their bits", 0);

    shape alone = s;
    alone.threads = s.threads == 1 ? 3 : 1;
    expect(turned(backend, alone, x, moves, factors, true) == ours, "the number of threads changes no bit", 0);

    const bool small = std::all_of(moves.begin(), moves.end(), [](int32_t d) { return std::abs(d) <= 64; });
    if (small) {
        const auto   stock = turned(backend, s, x, moves, factors, false);
        const double limit = s.type == GGML_TYPE_F16 ? 2.0/2048 : 4e-5;
        expect(worst(stock, expected) <= limit, "stock's own turns by as much", worst(stock, expected));
    }
}

int main() {
    ggml_backend_t backend = test_cpu_init();
    uint32_t seed = 1;
    for (const ggml_type type : { GGML_TYPE_F16, GGML_TYPE_F32 }) {
        for (const bool neox : { false, true }) {
            for (const int head : { 32, 64, 80, 128, 576 }) {
                for (const int rotated : { head, head/2, 20 }) {
                    for (const int kind : { 0, 1, 2, 3 }) {
                        shape s = { head, 3, 37, rotated, 0, neox, type, 10000.0f, 1.0f, 0.0f, false, 2 };
                        s.scale   = kind == 1 || kind == 2 ? 0.25f : 1.0f;
                        s.ext     = kind == 2 ? 1.0f : 0.0f;
                        s.factors = kind == 3;
                        s.base    = kind == 3 ? 500000.0f : s.base;
                        s.offset  = rotated == 20 ? (head - 20)/2*2 : 0;
                        std::vector<int32_t> moves(s.rows);
                        for (int i = 0; i < s.rows; ++i) {
                            moves[i] = i < 10 ? 0 : i < 30 ? -17 : i - 30;
                        }
                        one(backend, s, moves, seed++);
                        std::fill(moves.begin(), moves.end(), -100000);
                        one(backend, s, moves, seed++);
                    }
                }
            }
        }
    }
    ggml_backend_free(backend);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
