#include "rkv-cpu.h"

#include "rkv-attn-node.h"
#include "rkv-set-rows.h"
#include "rkv-split-rows.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>

namespace {

int64_t row_index(const ggml_tensor * idxs, int64_t i) {
    const char * p = (const char *) idxs->data + i*idxs->nb[0];
    return idxs->type == GGML_TYPE_I64 ? *(const int64_t *) p : *(const int32_t *) p;
}

} // namespace

bool rkv_cpu_set_rows(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_tensor * rows = dst->src[0];
    const ggml_tensor * idxs = dst->src[1];
    const ggml_tensor * tail = dst->src[RKV_SET_ROWS_SRC_TAIL];
    if (!tail) {
        return false;
    }

    GGML_ASSERT(rows->type == GGML_TYPE_F32 && tail->ne[0] == dst->ne[0]);
    GGML_ASSERT(rows->ne[2] == 1 && rows->ne[3] == 1);

    rkv::split_rows part;
    part.window     = (char *) dst->data;
    part.tail       = (char *) tail->data;
    part.row_window = dst->nb[1];
    part.row_tail   = tail->nb[1];
    part.n_window   = dst->op_params[RKV_SET_ROWS_PARAM_WINDOW];
    part.n_tail     = dst->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] - part.n_window;
    part.misplace   = rkv_fault_get() == RKV_FAULT_WRONG_PART;

    const ggml_from_float_t to_window = ggml_get_type_traits_cpu(dst->type)->from_float;
    const ggml_from_float_t to_tail   = ggml_get_type_traits_cpu(tail->type)->from_float;

    const int64_t nc  = rows->ne[0];
    const int64_t nr  = rows->ne[1];
    const int64_t dr  = (nr + params->nth - 1)/params->nth;
    const int64_t ir0 = dr*params->ith;
    const int64_t ir1 = std::min(ir0 + dr, nr);
    const int64_t n_cells = dst->ne[1]/part.n_window*part.n_kv(); // of all streams

    for (int64_t i = ir0; i < ir1; ++i) {
        const float * src = (const float *) ((const char *) rows->data + i*rows->nb[1]);
        const int64_t idx = row_index(idxs, i);
        GGML_ASSERT(idx >= 0 && idx < n_cells);
        const ggml_from_float_t from_float = part.in_window(idx) ? to_window : to_tail;
        if (from_float) {
            from_float(src, part.row(idx), nc);
        } else {
            memcpy(part.row(idx), src, nc*sizeof(float)); // f32
        }
    }

    return true;
}
