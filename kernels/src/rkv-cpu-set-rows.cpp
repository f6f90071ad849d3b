#include "rkv-cpu.h"

#include "rkv-attn-node.h"
#include "rkv-set-rows.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>

namespace {

struct rkv_split_dst {
    char *  window;
    char *  tail;
    size_t  row_window; // bytes
    size_t  row_tail;   // bytes
    int64_t n_window;   // cells of a stream
    int64_t n_tail;     // cells of a stream
    int64_t n_stream;
    bool    misplace; // fault: the first cell of the tail goes to the window

    int64_t cell(int64_t idx) const {
        const int64_t n_kv = n_window + n_tail;
        return misplace && idx%n_kv == n_window ? n_window - 1 : idx%n_kv;
    }

    char * row(int64_t idx) const {
        const int64_t stream = idx/(n_window + n_tail);
        GGML_ASSERT(idx >= 0 && stream < n_stream);
        return cell(idx) < n_window ? window + (stream*n_window + cell(idx))*row_window
                                    : tail + (stream*n_tail + cell(idx) - n_window)*row_tail;
    }
};

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

    rkv_split_dst part;
    part.window     = (char *) dst->data;
    part.tail       = (char *) tail->data;
    part.row_window = dst->nb[1];
    part.row_tail   = tail->nb[1];
    part.n_window   = dst->op_params[RKV_SET_ROWS_PARAM_WINDOW];
    part.n_tail     = dst->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] - part.n_window;
    part.n_stream   = dst->ne[1]/part.n_window;
    part.misplace   = rkv_fault_get() == RKV_FAULT_WRONG_PART;

    const ggml_from_float_t to_window = ggml_get_type_traits_cpu(dst->type)->from_float;
    const ggml_from_float_t to_tail   = ggml_get_type_traits_cpu(tail->type)->from_float;

    const int64_t nc  = rows->ne[0];
    const int64_t nr  = rows->ne[1];
    const int64_t dr  = (nr + params->nth - 1)/params->nth;
    const int64_t ir0 = dr*params->ith;
    const int64_t ir1 = std::min(ir0 + dr, nr);

    for (int64_t i = ir0; i < ir1; ++i) {
        const float * src = (const float *) ((const char *) rows->data + i*rows->nb[1]);
        const int64_t idx = row_index(idxs, i);
        const ggml_from_float_t from_float = part.cell(idx) < part.n_window ? to_window : to_tail;
        if (from_float) {
            from_float(src, part.row(idx), nc);
        } else {
            memcpy(part.row(idx), src, nc*sizeof(float)); // f32
        }
    }

    return true;
}
