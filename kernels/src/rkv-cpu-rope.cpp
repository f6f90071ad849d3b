// Moving rows of K to another position on the CPU: each pair of channels is turned by the angle of the move.
//
// RoPE (arXiv:2104.09864, equation 34) turns the pair i at position p by p*base^(-2i/n). Turns add up, so a row that was turned for
// p becomes that of p + d when it is turned by d. YaRN (arXiv:2309.00071, section 3.2) mixes two angles a pair; both are linear in
// the position, so the same holds. Its scale of the magnitude is in the row already and is left alone.

#include "rkv-cpu.h"
#include "rkv-rope-node.h"
#include "rkv-simd.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

using namespace rkv;

struct rope_params {
    int   n_dims;
    int   n_offs;
    bool  neox; // pairs are (i, i + n/2), else (2i, 2i + 1)
    int   n_ctx_orig;
    float freq_base;
    float freq_scale;
    float ext_factor;
    float corr[2];
    const float * factors; // [n_dims/2] or NULL
};

rope_params params_of(const ggml_tensor * node) {
    rope_params p;
    float beta_fast;
    float beta_slow;
    p.n_dims     = node->op_params[1];
    p.neox       = node->op_params[2] & GGML_ROPE_TYPE_NEOX;
    p.n_ctx_orig = node->op_params[4];
    p.n_offs     = node->op_params[15];
    memcpy(&p.freq_base,  node->op_params + 5,  sizeof(float));
    memcpy(&p.freq_scale, node->op_params + 6,  sizeof(float));
    memcpy(&p.ext_factor, node->op_params + 7,  sizeof(float));
    memcpy(&beta_fast,    node->op_params + 9,  sizeof(float));
    memcpy(&beta_slow,    node->op_params + 10, sizeof(float));
    ggml_rope_yarn_corr_dims(p.n_dims, p.n_ctx_orig, p.freq_base, beta_fast, beta_slow, p.corr);
    p.factors = node->src[2] ? (const float *) node->src[2]->data : nullptr;
    return p;
}

// cos and sin of each pair's angle for one move.
struct turn {
    int32_t move = 0;
    float   cos[RKV_ROPE_MAX/2];
    float   sin[RKV_ROPE_MAX/2];

    void set(const rope_params & p, int32_t d);
};

void turn::set(const rope_params & p, int32_t d) {
    // The model's own frequencies are powers of this f32.
    const double ratio = powf(p.freq_base, -2.0f/p.n_dims);
    double       freq  = 1.0;
    for (int i = 0; i < p.n_dims/2; ++i, freq *= ratio) {
        const double plain  = freq/(p.factors ? p.factors[i] : 1.0f);
        const double linear = p.freq_scale*plain;
        double       w      = linear;
        if (p.ext_factor != 0.0f) {
            const double ramp = (i - double(p.corr[0]))/std::max(0.001, double(p.corr[1]) - p.corr[0]);
            const double mix  = (1.0 - std::clamp(ramp, 0.0, 1.0))*p.ext_factor;
            w = linear*(1.0 - mix) + plain*mix;
        }
        cos[i] = float(std::cos(w*d));
        sin[i] = float(std::sin(w*d));
    }
    move = d;
}

// n pairs (a[i], b[i]).
void rotate(float * a, float * b, int n, const turn & t) {
    const vf zero = vf_zero();
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vf x = vf_load(a + i);
        const vf y = vf_load(b + i);
        const vf c = vf_load(t.cos + i);
        const vf s = vf_load(t.sin + i);
        vf_store(a + i, vf_fma(x, c, vf_mul(vf_sub(zero, y), s)));
        vf_store(b + i, vf_fma(x, s, vf_mul(y, c)));
    }
    if (i < n) {
        const int m = n - i;
        const vf  x = vf_load_part(a + i, m);
        const vf  y = vf_load_part(b + i, m);
        const vf  c = vf_load_part(t.cos + i, m);
        const vf  s = vf_load_part(t.sin + i, m);
        vf_store_part(a + i, vf_fma(x, c, vf_mul(vf_sub(zero, y), s)), m);
        vf_store_part(b + i, vf_fma(x, s, vf_mul(y, c)), m);
    }
}

void rotate_head(float * x, const rope_params & p, const turn & t) {
    const int half = p.n_dims/2;
    if (p.neox) {
        rotate(x, x + half, half, t);
        return;
    }
    float a[RKV_ROPE_MAX/2];
    float b[RKV_ROPE_MAX/2];
    for (int i = 0; i < half; ++i) {
        a[i] = x[2*i];
        b[i] = x[2*i + 1];
    }
    rotate(a, b, half, t);
    for (int i = 0; i < half; ++i) {
        x[2*i]     = a[i];
        x[2*i + 1] = b[i];
    }
}

void turn_head(float * row, const rope_params & p, const turn & t) {
    rotate_head(row + p.n_offs, p, t);
}

void turn_head(ggml_fp16_t * row, const rope_params & p, const turn & t) {
    float x[RKV_ROPE_MAX];
    ggml_cpu_fp16_to_fp32(row + p.n_offs, x, p.n_dims);
    rotate_head(x, p, t);
    ggml_cpu_fp32_to_fp16(x, row + p.n_offs, p.n_dims);
}

// Cells that one thread takes at a time. Moved ones lie together, so that threads take turns.
constexpr int64_t BLOCK = 16;

template <typename T> void turn_rows(const ggml_compute_params * params, ggml_tensor * dst) {
    const rope_params p     = params_of(dst);
    const int32_t *   moves = (const int32_t *) dst->src[1]->data;
    turn t;
    for (int64_t block = params->ith; block*BLOCK < dst->ne[2]; block += params->nth) {
        const int64_t end = std::min((block + 1)*BLOCK, dst->ne[2]);
        for (int64_t cell = block*BLOCK; cell < end; ++cell) {
            if (moves[cell] == 0) {
                continue;
            }
            if (moves[cell] != t.move) {
                t.set(p, moves[cell]);
            }
            for (int64_t head = 0; head < dst->ne[1]; ++head) {
                turn_head((T *) ((char *) dst->data + cell*dst->nb[2] + head*dst->nb[1]), p, t);
            }
        }
    }
}

} // namespace

bool rkv_cpu_rope(const ggml_compute_params * params, ggml_tensor * dst) {
    if (dst->op_params[RKV_ROPE_PARAM_MARK] != RKV_ROPE_MARK) {
        return false;
    }
    GGML_ASSERT(dst->data == dst->src[0]->data && dst->ne[3] == 1 && dst->op_params[1] <= RKV_ROPE_MAX);
    if (dst->type == GGML_TYPE_F16) {
        turn_rows<ggml_fp16_t>(params, dst);
    } else {
        GGML_ASSERT(dst->type == GGML_TYPE_F32);
        turn_rows<float>(params, dst);
    }
    return true;
}
