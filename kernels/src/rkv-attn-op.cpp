#include "rkv-attn.h"

#include "rkv-attn-drivers.h"

#include <algorithm>
#include <string.h>

namespace rkv {

// The newest tile of the tail that any query sees: the last one may hold only cells that are not in use yet.
static int last_live_tail_tile(const attn_args & a, const mask_table & table) {
    for (int t = a.n_tile - 1; t >= a.n_tile_win; --t) {
        for (int stream = 0; stream < a.n_stream; ++stream) {
            if (table.is_live(stream, t)) {
                return t;
            }
        }
    }
    return -1;
}

static rkv_layer_counters * counters_of(const ggml_tensor * node) {
    rkv_layer_counters * c;
    memcpy(&c, node->op_params + RKV_OP_PARAM_COUNTERS, sizeof(c));
    return c;
}

static void count(const attn_args & a, const mask_table & table, rkv_layer_counters & c) {
    const bool    v_in_k     = a.part_k[0]->view_src && a.part_k[0]->view_src == a.part_v[0]->view_src;
    const int     tail       = a.part_k[1] ? 1 : 0;
    const size_t  cell_bytes = a.n_head_kv * (ggml_row_size(a.part_k[tail]->type, a.d_k) + (v_in_k ? 0 : ggml_row_size(a.part_v[tail]->type, a.d_v)));
    const int64_t heads_of_a_mask_row = a.mask ? a.n_head / a.mask->ne[2] : a.n_head;

    c.nodes++;
    for (int stream = 0; stream < a.n_stream; ++stream) {
        for (int t = 0; t < a.n_tile; ++t) {
            for (int block = 0; block < table.n_block(); ++block) {
                c.partials_merged += (uint64_t) table.at(stream, block, t).n_rows * heads_of_a_mask_row;
            }
            if (!table.is_live(stream, t)) {
                continue;
            }
            if (t < a.n_tile_win && !c.all_in_tail) {
                c.tiles_window++;
                continue;
            }
            const uint64_t bytes = cell_bytes * a.tile_cells(t);
            c.tiles_tail++;
            c.tail_bytes_read += bytes;
            if (a.by_host(stream, t)) {
                c.tiles_host++;
                c.host_bytes_read += bytes;
            }
        }
    }
}

void attn_begin(attn_args & a, const mask_table & table, const ggml_compute_params * params) {
    if (a.fault == RKV_FAULT_DROP_TILE) {
        a.drop_tile = last_live_tail_tile(a, table);
    }
    rkv_layer_counters * c = counters_of(a.dst);
    if (c && params->ith == 0) {
        count(a, table, *c);
    }
}

} // namespace rkv

bool rkv_cpu_flash_attn_ext(const ggml_compute_params * params, ggml_tensor * dst) {
    if (rkv::attn_tile(dst) == 0) {
        return false;
    }
    rkv::attn_args a = rkv::attn_args_read(dst);
    a.fault = rkv_fault_get();
    if (a.feed && params->ith == 0) {
        a.feed->begin(a.feed->user);
    }
    if (a.n_q <= rkv::TILES_QUERIES_MAX) {
        rkv::tiles_compute(a, params);
    } else {
        rkv::blocks_compute(a, params);
    }
    return true;
}

size_t rkv_cpu_flash_attn_work_size(const ggml_tensor * node, int n_tasks) {
    if (rkv::attn_tile(node) == 0) {
        return 0;
    }
    const rkv::attn_args a = rkv::attn_args_read(node);
    if (a.n_q <= rkv::TILES_QUERIES_MAX) {
        return rkv::tiles_work_size(a, n_tasks);
    }
    return rkv::blocks_work_size(a, n_tasks);
}
