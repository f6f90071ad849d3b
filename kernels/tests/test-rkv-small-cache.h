#pragma once

// A cache of a few layers in two parts, and the attention nodes of a step over it.

#include "rkv-cuda-node.h"
#include "rkv-ring.h"
#include "rkv-split-rows.h"
#include "rkv-step.h"

#include "ggml.h"

#include <cstdint>
#include <memory>
#include <vector>

struct shape {
    int  n_layer    = 3;
    int  n_head     = 4;
    int  n_head_kv  = 2;
    int  d          = 16;
    int  tile       = 32;
    int  kv_size    = 384;
    int  n_stream   = 1;
    int  window     = 64;  // cells; 0: every cell is in the tail
    bool mla        = false; // V is the first half of K's rows

    uint32_t           depth      = 3;
    uint32_t           copy_cells = 64;
    rkv::ring_schedule schedule   = rkv::ring_schedule::ring;

    int    d_v() const { return mla ? d/2 : d; }
    size_t row_k() const { return size_t(n_head_kv)*d*sizeof(ggml_fp16_t); }
    size_t row_v() const { return size_t(n_head_kv)*d_v()*sizeof(ggml_fp16_t); }
};

// Rows of K or V of one layer in two parts.
struct rows_of_layer {
    std::vector<char> part[2];
    size_t            row;

    rows_of_layer(const shape & s, int window, size_t row) : row(row) {
        part[0].assign(size_t(window)*s.n_stream*row, char(0xff));
        part[1].assign(size_t(s.kv_size - window)*s.n_stream*row, 0);
    }
    rkv::split_rows split(const shape & s, int window) {
        return { part[0].data(), part[1].data(), row, row, window, s.kv_size - window, false };
    }
};

// What one step adds: the same for each cache that runs it.
struct step_input {
    std::vector<int>                      cells;  // [streams] first cell that is written
    int                                   n_new;  // rows of a stream
    std::vector<int>                      live;   // [streams] cells in use with them
    std::vector<std::vector<ggml_fp16_t>> k, v;   // [layers] rows, of one stream behind the other
    std::vector<std::vector<float>>       q;      // [layers]
    int                                   n_kv;
};

struct cache {
    shape                      s;
    int                        window;
    std::vector<rows_of_layer> k, v;

    cache(const shape & s, int window) : s(s), window(window) {
        for (int il = 0; il < s.n_layer; ++il) {
            k.emplace_back(s, window, s.row_k());
            v.emplace_back(s, window, s.row_v());
        }
    }
};

// The graph's nodes of one step, and what they point to.
struct step_graph {
    ggml_context *                   ctx = nullptr;
    std::vector<ggml_tensor *>       nodes; // [layers]
    std::vector<std::vector<float>>  q;
    std::vector<ggml_fp16_t>         mask;
    std::vector<std::vector<char>>   room;  // of the results and of what they are computed in
    std::vector<rkv_step_stream>     streams;
    rkv_step                         step;

    std::vector<std::unique_ptr<rkv::gathered>> gathered; // layers of a long batch

    step_graph() = default;
    step_graph(const step_graph &) = delete;
    ~step_graph() { ggml_free(ctx); }
};

// The nodes of a step, over the cells that are in use with it.
std::unique_ptr<step_graph> make_graph(cache & c, const step_input & in);

// New rows of a layer, each to the part that its cell belongs to.
void write_rows(cache & c, const step_input & in, int il);

std::vector<float> result_of(const ggml_tensor * node);
