#include "rkv-attn-args.h"

#include <math.h>
#include <string.h>

namespace rkv {

// What RKV_FAULT_STALE_TILE shows instead of the tail's first tile: one row of zeroes, read for every cell and head.
static const char zero_row[16384] = {};

int attn_tile(const ggml_tensor * node) {
    return node->op_params[RKV_OP_PARAM_TILE];
}

static void check_part(const attn_args & a, const ggml_tensor * k, const ggml_tensor * v) {
    GGML_ASSERT(k->ne[0] == a.d_k && v->ne[0] == a.d_v);
    GGML_ASSERT(k->ne[1] == v->ne[1]);
    GGML_ASSERT(k->ne[2] == a.n_head_kv && v->ne[2] == a.n_head_kv);
    GGML_ASSERT(k->ne[3] == a.n_stream && v->ne[3] == a.n_stream);
    GGML_ASSERT(k->nb[0] == ggml_type_size(k->type) && v->nb[0] == ggml_type_size(v->type));
    GGML_ASSERT(ggml_row_size(k->type, a.d_k) <= sizeof(zero_row) && ggml_row_size(v->type, a.d_v) <= sizeof(zero_row));
}

static void check(const attn_args & a) {
    GGML_ASSERT(a.tile > 0);
    GGML_ASSERT(a.q->type == GGML_TYPE_F32 && a.q->nb[0] == sizeof(float));
    GGML_ASSERT(a.q->ne[0] == a.d_k);
    GGML_ASSERT(a.n_head % a.n_head_kv == 0);
    GGML_ASSERT((a.part_k[1] == nullptr) == (a.part_v[1] == nullptr));

    check_part(a, a.part_k[0], a.part_v[0]);
    if (a.part_k[1]) {
        check_part(a, a.part_k[1], a.part_v[1]);
        GGML_ASSERT(a.n_win % a.tile == 0 && "a window that has a tail is a whole number of tiles");
    }
    if (a.mask) {
        GGML_ASSERT(a.mask->type == GGML_TYPE_F16 && a.mask->nb[0] == sizeof(ggml_fp16_t));
        GGML_ASSERT(a.mask->ne[0] >= a.n_kv && a.mask->ne[1] >= a.n_q);
        GGML_ASSERT(a.n_head % a.mask->ne[2] == 0 && a.n_stream % a.mask->ne[3] == 0);
    }
    GGML_ASSERT(a.dst->type == GGML_TYPE_F32 && a.dst->nb[0] == sizeof(float));
    GGML_ASSERT(a.dst->ne[0] == a.d_v && a.dst->ne[1] == a.n_head && a.dst->ne[2] == a.n_q);
}

attn_args attn_args_read(const ggml_tensor * node) {
    attn_args a = {};
    a.q         = node->src[0];
    a.part_k[0] = node->src[1];
    a.part_v[0] = node->src[2];
    a.part_k[1] = node->src[RKV_ATTN_SRC_K_TAIL];
    a.part_v[1] = node->src[RKV_ATTN_SRC_V_TAIL];
    a.mask      = node->src[3];
    a.sinks     = node->src[4] ? (const float *) node->src[4]->data : nullptr;
    a.dst       = const_cast<ggml_tensor *>(node);

    a.d_k       = (int) a.part_k[0]->ne[0];
    a.d_v       = (int) a.part_v[0]->ne[0];
    a.n_head_kv = (int) a.part_k[0]->ne[2];
    a.n_q       = (int) a.q->ne[1];
    a.n_head    = (int) a.q->ne[2];
    a.n_stream  = (int) a.q->ne[3];
    a.n_gqa     = a.n_head / a.n_head_kv;

    a.n_win      = a.part_k[0]->ne[1];
    a.n_kv       = a.n_win + (a.part_k[1] ? a.part_k[1]->ne[1] : 0);
    a.tile       = attn_tile(node);
    a.n_tile     = (int) ((a.n_kv + a.tile - 1) / a.tile);
    a.n_tile_win = (int) ((a.n_win + a.tile - 1) / a.tile);

    float op_params[3];
    memcpy(op_params, node->op_params, sizeof(op_params));
    a.softcap  = op_params[2];
    a.scale    = a.softcap == 0.0f ? op_params[0] : op_params[0] / a.softcap;
    a.max_bias = op_params[1];

    memcpy(&a.feed, node->op_params + RKV_OP_PARAM_FEED, sizeof(a.feed));
    a.fault     = RKV_FAULT_NONE;
    a.drop_tile = -1;
    check(a);
    return a;
}

float attn_args::slope(int head) const {
    if (max_bias <= 0.0f) {
        return 1.0f;
    }
    // Two geometric series: the heads past the last power of two take the odd steps of one twice as fine.
    const int   n_pow2 = 1 << (int) floorf(log2f((float) n_head));
    const float bias   = head < n_pow2 ? max_bias : max_bias / 2.0f;
    const int   step   = head < n_pow2 ? head + 1 : 2*(head - n_pow2) + 1;
    return powf(powf(2.0f, -bias / n_pow2), (float) step);
}

static void show_stale(const attn_args & a, int t, tile_rows & r) {
    if (a.fault == RKV_FAULT_STALE_TILE && a.part_k[1] && t == a.n_tile_win) {
        r.k = r.v = zero_row;
        r.k_nb_cell = r.k_nb_head = r.v_nb_cell = r.v_nb_head = 0;
    }
}

tile_rows attn_args::rows(int stream, int t) const {
    const bool in_tail = t >= n_tile_win;
    const ggml_tensor * k = part_k[in_tail];
    const ggml_tensor * v = part_v[in_tail];
    const int64_t cell = tile_begin(t) - (in_tail ? n_win : 0);

    tile_rows r;
    r.n_cells   = tile_cells(t);
    r.k_type    = k->type;
    r.v_type    = v->type;
    r.k_nb_cell = k->nb[1];
    r.k_nb_head = k->nb[2];
    r.v_nb_cell = v->nb[1];
    r.v_nb_head = v->nb[2];
    r.k = (const char *) k->data + cell*k->nb[1] + stream*k->nb[3];
    r.v = (const char *) v->data + cell*v->nb[1] + stream*v->nb[3];
    show_stale(*this, t, r);
    return r;
}

tile_rows attn_args::rows_fed(int stream, int t) const {
    rkv_fed_tile fed;
    feed->acquire(feed->user, stream, t, &fed);

    const ggml_tensor * k = part_k[t >= n_tile_win];
    const ggml_tensor * v = part_v[t >= n_tile_win];
    tile_rows r;
    r.n_cells   = tile_cells(t);
    r.k_type    = k->type;
    r.v_type    = v->type;
    r.k         = (const char *) fed.k;
    r.v         = (const char *) fed.v;
    r.k_nb_cell = fed.k_nb_cell;
    r.v_nb_cell = fed.v_nb_cell;
    r.k_nb_head = k->nb[2];
    r.v_nb_head = v->nb[2];
    show_stale(*this, t, r);
    return r;
}

} // namespace rkv
