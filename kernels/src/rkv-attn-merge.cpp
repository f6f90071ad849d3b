#include "rkv-attn-merge.h"

#include "rkv-simd.h"

namespace rkv {

merge_state merge_begin(float * o, int d_v) {
    memset(o, 0, d_v * sizeof(float));
    return { -INFINITY, 0.0f, o };
}

// o := o*weight_old + other*weight_new
static void blend(float * o, float weight_old, const float * other, float weight_new, int d_v) {
    const vf w_old = vf_set1(weight_old);
    const vf w_new = vf_set1(weight_new);
    int d = 0;
    for (; d + LANES <= d_v; d += LANES) {
        vf_store(o + d, vf_fma(vf_load(other + d), w_new, vf_mul(vf_load(o + d), w_old)));
    }
    if (d < d_v) {
        const int n = d_v - d;
        const vf  x = vf_fma(vf_load_part(other + d, n), w_new, vf_mul(vf_load_part(o + d, n), w_old));
        vf_store_part(o + d, x, n);
    }
}

void merge_partial(merge_state & state, float max, float sum, const float * o, int d_v) {
    if (sum == 0.0f) {
        return;
    }
    // The larger maximum keeps the weight 1, so only one exponential is needed.
    const bool  grows      = max > state.max;
    const float weight_old = grows ? expf(state.max - max) : 1.0f;
    const float weight_new = grows ? 1.0f : expf(max - state.max);
    blend(state.o, weight_old, o, weight_new, d_v);
    state.sum = state.sum * weight_old + sum * weight_new;
    state.max = grows ? max : state.max;
}

void merge_finish(merge_state & state, const float * sink, int d_v) {
    float weight = 1.0f;
    float sum    = state.sum;
    if (sink && *sink > state.max) {
        weight = expf(state.max - *sink);
        sum    = sum * weight + 1.0f;
    } else if (sink) {
        sum += expf(*sink - state.max);
    }
    if (sum == 0.0f) {
        return;
    }
    const vf w = vf_set1(weight / sum);
    int d = 0;
    for (; d + LANES <= d_v; d += LANES) {
        vf_store(state.o + d, vf_mul(vf_load(state.o + d), w));
    }
    if (d < d_v) {
        vf_store_part(state.o + d, vf_mul(vf_load_part(state.o + d, d_v - d), w), d_v - d);
    }
}

} // namespace rkv
