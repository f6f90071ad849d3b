#include "test-rkv-small-cache.h"

#include "rkv-attn-node.h"

#include <algorithm>
#include <cmath>
#include <cstring>

static ggml_tensor * part_of(step_graph & g, const shape & s, rows_of_layer & rows, int part, int d, int64_t n, int64_t n_part) {
    ggml_tensor * base = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F16, int64_t(d)*s.n_head_kv, n_part, s.n_stream);
    base->data = rows.part[part].data();
    const size_t  head = d*sizeof(ggml_fp16_t);
    ggml_tensor * t    = ggml_view_4d(g.ctx, base, d, n, s.n_head_kv, s.n_stream, rows.row, head, rows.row*n_part, 0);
    t->data = base->data;
    return t;
}

static void make_node(step_graph & g, cache & c, const step_input & in, int il) {
    const shape & s = c.s;
    g.q[il] = in.q[il];
    ggml_tensor * q = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F32, s.d, in.n_new, s.n_head, s.n_stream);
    q->data = g.q[il].data();
    ggml_tensor * mask = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, in.n_kv, in.n_new, 1, s.n_stream);
    mask->data = g.mask.data();

    ggml_tensor * k[2] = {};
    ggml_tensor * v[2] = {};
    const int64_t of_part[2] = { std::min(in.n_kv, c.window), std::max(in.n_kv - c.window, 0) };
    const int64_t size[2]    = { c.window, s.kv_size - c.window };
    for (int part = 0, n = 0; part < 2; ++part) {
        if (of_part[part] > 0) {
            k[n] = part_of(g, s, c.k[il], part, s.d, of_part[part], size[part]);
            v[n] = s.mla ? ggml_view_4d(g.ctx, k[n], s.d_v(), k[n]->ne[1], s.n_head_kv, s.n_stream, k[n]->nb[1], k[n]->nb[2], k[n]->nb[3], 0)
                         : part_of(g, s, c.v[il], part, s.d_v(), of_part[part], size[part]);
            v[n]->data = s.mla ? k[n]->data : v[n]->data;
            n++;
        }
    }
    ggml_tensor * node = ggml_flash_attn_ext(g.ctx, q, k[0], v[0], mask, 1.0f/std::sqrt(float(s.d)), 0.0f, 0.0f);
    node->src[RKV_ATTN_SRC_K_TAIL] = k[1];
    node->src[RKV_ATTN_SRC_V_TAIL] = v[1];
    node->op_params[RKV_OP_PARAM_TILE] = s.tile;
    const rkv_step * step = &g.step;
    memcpy(node->op_params + RKV_OP_PARAM_STEP, &step, sizeof(step));
    const rkv::attn_args a    = rkv::attn_args_read(node);
    const size_t         room = rkv::decode_room(a, a.n_q).bytes;
    rkv::gathered whole(a, true);
    whole.place(room);
    g.room[il].assign(whole.bytes, char(0xff));
    node->data = g.room[il].data();
    g.nodes[il] = node;
}

std::unique_ptr<step_graph> make_graph(cache & c, const step_input & in) {
    auto g = std::make_unique<step_graph>();
    g->ctx = ggml_init({ 64*size_t(c.s.n_layer)*ggml_tensor_overhead(), nullptr, true });
    g->nodes.resize(c.s.n_layer);
    g->q.resize(c.s.n_layer);
    g->room.resize(c.s.n_layer);
    g->streams.resize(c.s.n_stream);
    for (int st = 0; st < c.s.n_stream; ++st) {
        g->streams[st] = { uint32_t(in.cells[st]), uint32_t(in.cells[st] + in.n_new), uint32_t(in.live[st]) };
        for (int iq = 0; iq < in.n_new; ++iq) {
            for (int cell = 0; cell < in.n_kv; ++cell) {
                g->mask.push_back(ggml_fp32_to_fp16(cell <= in.cells[st] + iq ? 0.0f : -INFINITY));
            }
        }
    }
    g->step = { uint32_t(c.s.n_stream), g->streams.data() };
    for (int il = 0; il < c.s.n_layer; ++il) {
        make_node(*g, c, in, il);
    }
    return g;
}

void write_rows(cache & c, const step_input & in, int il) {
    const auto write = [&](rows_of_layer & to, const std::vector<ggml_fp16_t> & rows) {
        const rkv::split_rows split = to.split(c.s, c.window);
        for (int st = 0; st < c.s.n_stream; ++st) {
            for (int i = 0; i < in.n_new; ++i) {
                memcpy(split.row(int64_t(st)*c.s.kv_size + in.cells[st] + i), (const char *) rows.data() + size_t(st*in.n_new + i)*to.row, to.row);
            }
        }
    };
    write(c.k[il], in.k[il]);
    if (!c.s.mla) {
        write(c.v[il], in.v[il]);
    }
}

std::vector<float> result_of(const ggml_tensor * node) {
    const float * x = (const float *) node->data;
    return { x, x + ggml_nelements(node) };
}
