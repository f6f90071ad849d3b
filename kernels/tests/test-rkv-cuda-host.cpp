#include "test-rkv-cuda-host.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

using rkv::attn_block;
using rkv::attn_shared;
using rkv::attn_share;
using rkv::attn_tiles;
using rkv::merge_share;
using rkv::merge_tiles;

namespace {

// Each thread of a block, between two barriers.
template <typename F> void threads(int n, bool backwards, F && f) {
    for (int i = 0; i < n; ++i) {
        f(backwards ? n - 1 - i : i);
    }
}

// What lanes get that add up or compare with each other at distances n/2, n/4, .. 1.
template <int N, typename F> float across(const float (& x)[N], F && f) {
    float now[N];
    std::copy_n(x, N, now);
    for (int offset = N/2; offset > 0; offset /= 2) {
        float next[N];
        for (int i = 0; i < N; ++i) {
            next[i] = f(now[i], now[i ^ offset]);
        }
        std::copy_n(next, N, now);
    }
    return now[0];
}

float add(float a, float b) {
    return a + b;
}

template <int R, int TYPE> void scores(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int c0) {
    for (int c = 0; c < rkv::ATTN_CHUNK; ++c) {
        float lanes[R][rkv::ATTN_LANES] = {};
        for (int lane = 0; lane < rkv::ATTN_LANES && sh.live[c]; ++lane) {
            float acc[R] = {};
            rkv::attn_dot<R, TYPE>(a, b, sh, c0 + c, lane, acc);
            for (int r = 0; r < R; ++r) {
                lanes[r][lane] = acc[r];
            }
        }
        for (int r = 0; r < R; ++r) {
            rkv::attn_put_score(a, sh, r, c, across(lanes[r], add));
        }
    }
}

template <int R> void softmax(const attn_shared & sh) {
    for (int r = 0; r < R; ++r) {
        float m = -INFINITY;
        for (int c = 0; c < rkv::ATTN_CHUNK; ++c) {
            m = std::max(m, sh.s[r*rkv::ATTN_CHUNK + c]);
        }
        rkv::attn_put_max(sh, r, m);
        float lanes[32] = {};
        for (int c = 0; c < rkv::ATTN_CHUNK; ++c) {
            lanes[c%32] += rkv::attn_put_weight(sh, r, c);
        }
        sh.sum[r] = sh.sum[r]*sh.shrink[r] + across(lanes, add);
    }
}

template <int R, int TYPE_K, int TYPE_V> void block(const attn_tiles & a, const attn_block & b, bool backwards) {
    std::vector<float> memory(attn_shared::floats(R, a.d_k), NAN); // shared memory holds anything
    const attn_shared sh = attn_shared::carve(memory.data(), R, a.d_k);
    struct registers {
        float acc[R][rkv::ATTN_VEC] = {};
    };
    std::vector<registers> of(rkv::ATTN_THREADS);

    threads(rkv::ATTN_THREADS, backwards, [&](int tid) { rkv::attn_load_q<R>(a, b, sh, tid); });
    for (int c0 = 0; c0 < b.n_cells; c0 += rkv::ATTN_CHUNK) {
        threads(rkv::ATTN_THREADS, backwards, [&](int tid) { rkv::attn_load_mask<R>(a, b, sh, c0, tid); });
        bool any = false;
        threads(rkv::ATTN_THREADS, backwards, [&](int tid) { any = rkv::attn_note_live<R>(sh, tid) || any; });
        if (!any) {
            continue;
        }
        scores<R, TYPE_K>(a, b, sh, c0);
        softmax<R>(sh);
        threads(rkv::ATTN_THREADS, backwards, [&](int tid) {
            const attn_share share = rkv::attn_share_of(a.d_v, tid);
            if (!share.idle) {
                rkv::attn_add_v<R, TYPE_V>(a, b, sh, share, c0, of[tid].acc);
            }
        });
    }
    for (int r = 0; r < R && b.row0 + r < a.rows_of_kv_head(); ++r) {
        rkv::attn_put_sums(a, b, sh, r);
        if (sh.sum[r] == 0.0f) {
            continue;
        }
        threads(rkv::ATTN_THREADS, backwards, [&](int tid) { rkv::attn_leave(sh, rkv::attn_share_of(a.d_v, tid), a.d_v, of[tid].acc[r]); });
        threads(rkv::ATTN_THREADS, backwards, [&](int tid) { rkv::attn_put_o(a, b, sh, r, tid); });
    }
}

template <int R, int TYPE_K, int TYPE_V> void grid(const attn_tiles & a, int n_tiles, bool backwards) {
    const int n_groups = (a.rows_of_kv_head() + R - 1)/R;
    for (int t = 0; t < n_tiles; ++t) {
        for (int kv_head = 0; kv_head < a.n_head/a.n_gqa; ++kv_head) {
            for (int group = 0; group < n_groups; ++group) {
                block<R, TYPE_K, TYPE_V>(a, rkv::attn_block_of(a, t, kv_head, group, R), backwards);
            }
        }
    }
}

template <int TYPE_K, int TYPE_V> void grid_of_rows(const attn_tiles & a, int n_tiles, bool backwards) {
    const int rows = a.rows_of_kv_head();
    if (rows == 1) {
        grid<1, TYPE_K, TYPE_V>(a, n_tiles, backwards);
    } else if (rows == 2) {
        grid<2, TYPE_K, TYPE_V>(a, n_tiles, backwards);
    } else if (rows <= 4) {
        grid<4, TYPE_K, TYPE_V>(a, n_tiles, backwards);
    } else {
        grid<8, TYPE_K, TYPE_V>(a, n_tiles, backwards);
    }
}

} // namespace

void host_queue::tiles(const attn_tiles & a, int n_tiles) {
    n_launches++;
    if (a.type_k == GGML_TYPE_F16 && a.type_v == GGML_TYPE_F16) {
        grid_of_rows<GGML_TYPE_F16, GGML_TYPE_F16>(a, n_tiles, backwards);
    } else {
        grid_of_rows<rkv::ATTN_ANY_TYPE, rkv::ATTN_ANY_TYPE>(a, n_tiles, backwards);
    }
}

void host_queue::merge(const merge_tiles & a) {
    n_merges++;
    for (int r = 0; r < a.n_rows; ++r) {
        const float max_before = a.first ? -INFINITY : a.state[r*2];
        const float sum_before = a.first ? 0.0f : a.state[r*2 + 1];
        float m = max_before;
        threads(rkv::MERGE_THREADS, backwards, [&](int tid) { m = std::max(m, rkv::merge_max(a, r, tid)); });
        const float weight_before = m == max_before ? 1.0f : expf(max_before - m);

        std::vector<float> weights(a.n_made, NAN);
        threads(rkv::MERGE_THREADS, backwards, [&](int tid) { rkv::merge_weights(a, r, m, weights.data(), tid); });

        const int          n_group = rkv::merge_share_of(a.d_v, 0).n_group;
        std::vector<float> runs(size_t(n_group)*(a.d_v + 1), NAN);
        threads(rkv::MERGE_THREADS, backwards, [&](int tid) {
            const merge_share share = rkv::merge_share_of(a.d_v, tid);
            if (share.idle) {
                return;
            }
            float x[5];
            rkv::merge_run(a, r, share, weights.data(), x);
            float * run = runs.data() + size_t(share.group)*(a.d_v + 1);
            std::copy_n(x, 4, run + share.d0);
            if (share.d0 == 0) {
                run[a.d_v] = x[4];
            }
        });
        const float sum = rkv::merge_groups(a, runs.data(), n_group, sum_before, weight_before, a.d_v);
        const float end = a.last ? rkv::merge_end(a, r, m, sum) : 1.0f;
        float *     row = a.row(r);
        for (int d = 0; d < a.d_v; ++d) {
            row[d] = rkv::merge_groups(a, runs.data(), n_group, a.first ? 0.0f : row[d], weight_before, d)*end;
        }
        a.state[r*2]     = m;
        a.state[r*2 + 1] = sum;
    }
}

void host_queue::copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) {
    for (size_t r = 0; r < rows; ++r) {
        memcpy(dst + r*width, src + r*stride, width);
    }
}

void host_queue::convert(const rkv::convert_rows & a) {
    for (int64_t i = 0; i < a.n(); ++i) {
        rkv::convert_vec(a, backwards ? a.n() - 1 - i : i);
    }
}

void host_queue::zero(char * dst, size_t bytes) {
    memset(dst, 0, bytes);
}

// What a node of a device writes to is not the rig's memory: partials lie behind its result.
static void attend_with_room(ggml_tensor * node, const std::function<void(rkv::placed_node &)> & place, host_queue & queue) {
    rkv::attn_args    a = rkv::attn_args_read(node);
    std::vector<char> memory(rkv::decode_room(a, a.n_q).bytes, char(0xff));
    const size_t      bytes = ggml_nbytes(node);
    void * const      data  = node->data;

    node->data = memory.data();
    rkv::placed_node placed = { a };
    place(placed);
    rkv::attend(placed, queue);
    node->data = data;
    memcpy(data, memory.data(), bytes);
}

void host_attend(ggml_tensor * node, bool backwards, rkv_fault fault) {
    host_queue queue(backwards);
    attend_with_room(node, [&](rkv::placed_node & placed) { placed.fault = fault; }, queue);
}

namespace {

class engine_share : public rkv::host_share {
public:
    engine_share(const ggml_tensor * node, const rkv_host_engine_api & api, rkv_host_engine * engine, bool waits) : api(api), waits(waits) {
        const rkv::attn_args a = rkv::attn_args_read(node);
        n_rows = a.n_head*a.n_q;
        d_v    = a.d_v;
        for (int s = 0; s < a.n_stream; ++s) {
            for (int t = a.n_tile_win; t < a.n_tile; ++t) {
                tiles.push_back({ s, t });
            }
        }
        job = api.job_new(engine, node, tiles.data(), tiles.size(), nullptr);
    }
    ~engine_share() override { api.job_free(job); }

    size_t        count() const override { return tiles.size(); }
    rkv_host_tile tile(size_t i) const override { return tiles[i]; }

    void start() override {
        if (waits) {
            api.job_start(job);
        }
    }

    void partials(size_t first, size_t n, float * sums, float * o) override {
        for (size_t i = 0; i < n; ++i) {
            rkv_tile_partials p;
            api.job_wait(job, first + i, waits, &p);
            std::copy_n(p.sums, 2*n_rows, sums + i*2*n_rows);
            for (size_t row = 0; row < n_rows; ++row) {
                std::copy_n(p.o + row*p.ld_o, d_v, o + (i*n_rows + row)*d_v);
            }
        }
    }

private:
    const rkv_host_engine_api & api;
    bool                        waits;
    size_t                      n_rows, d_v;
    std::vector<rkv_host_tile>  tiles;
    rkv_host_job *              job;
};

} // namespace

void host_attend_beside(ggml_tensor * node, const rkv_host_engine_api & api, rkv_host_engine * engine, bool waits) {
    engine_share share(node, api, engine, waits);
    host_queue   queue;
    attend_with_room(node, [&](rkv::placed_node & placed) {
        placed.in_tail[1] = true;
        placed.host       = &share;
    }, queue);
}

void host_attend_in_one(ggml_tensor * node) {
    constexpr size_t     ALIGNMENT = 256;
    const rkv::attn_args a     = rkv::attn_args_read(node);
    const size_t         bytes = ggml_nbytes(node);
    const size_t         room  = rkv::decode_room(a, a.n_q).bytes;
    rkv::gathered        all(a, true);
    all.place(room);
    std::vector<char> memory(all.bytes + ALIGNMENT, char(0xff));
    all.node.data = memory.data() + (ALIGNMENT - (uintptr_t) memory.data()%ALIGNMENT)%ALIGNMENT;
    all.place(room);

    host_queue queue(true);
    rkv::gather({ a }, all, queue);
    all.node.op_params[RKV_OP_PARAM_TILE] = a.tile;
    const rkv::attn_args whole = rkv::attn_args_read(&all.node);
    rkv::attend({ whole }, queue);
    memcpy(node->data, all.node.data, bytes);
}
