// Attention of the CPU backend, stock against tiled, in one run: the two are interleaved, so that a busy machine slows
// both, and the least time of each is taken. Every node has cells of its own, more in all than any cache holds.

#include "rkv-attn-node.h"
#include "rkv-test-cpu.h"
#include "rkv-test-read.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <ctime>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

struct bench_case {
    const char * name;
    ggml_type    type;
    int          d_k, d_v, n_head, n_head_kv, n_q, n_kv;
    bool         causal; // the last n_q cells are those of the queries
};

struct bench_options {
    int    n_repeat = 12;
    int    tile     = 256;
    size_t bytes    = 192u << 20; // of cells, over all nodes of a graph
    std::vector<int> n_threads = { 1, 2 };
    bool   huge_pages = false;
    bool   cpu_clock = false; // time of the processor: for one thread on a machine that others use too
    std::string filter;
    const char * module = nullptr; // file of the CPU backend's variant
};

struct bench_graph {
    ggml_context * ctx;
    ggml_cgraph  * stock;
    ggml_cgraph  * tiled;
    ggml_backend_buffer_t buffer;
    void         * memory; // of the buffer, when it is ours
    int            n_layer;
    double         kv_bytes; // of one layer
};

} // namespace

static void fill(ggml_tensor * t, uint32_t seed) {
    std::vector<float> x(ggml_nelements(t));
    for (float & v : x) {
        seed = seed*1664525u + 1013904223u;
        v = (float) (seed >> 8) / (1 << 24) - 0.5f;
    }
    if (t->type == GGML_TYPE_F32) {
        ggml_backend_tensor_set(t, x.data(), 0, ggml_nbytes(t));
        return;
    }
    std::vector<uint8_t> q(ggml_nbytes(t));
    ggml_quantize_chunk(t->type, x.data(), q.data(), 0, ggml_nelements(t)/t->ne[0], t->ne[0], nullptr);
    ggml_backend_tensor_set(t, q.data(), 0, q.size());
}

static void fill_mask(ggml_tensor * mask, const bench_case & c) {
    std::vector<ggml_fp16_t> m((size_t) c.n_kv*c.n_q);
    const ggml_fp16_t zero = ggml_fp32_to_fp16(0.0f), never = ggml_fp32_to_fp16(-INFINITY);
    for (int iq = 0; iq < c.n_q; ++iq) {
        for (int cell = 0; cell < c.n_kv; ++cell) {
            m[(size_t) iq*c.n_kv + cell] = c.causal && cell > c.n_kv - c.n_q + iq ? never : zero;
        }
    }
    ggml_backend_tensor_set(mask, m.data(), 0, ggml_nbytes(mask));
}

// A cache row holds all KV heads of a cell; heads are seen through a permuted view, as llama.cpp does.
static ggml_tensor * cells_view(ggml_context * ctx, ggml_tensor * cache, int d, int n_head_kv, int n_kv) {
    const size_t head = ggml_row_size(cache->type, d);
    ggml_tensor * t = ggml_view_3d(ctx, cache, d, n_head_kv, n_kv, head, head*n_head_kv, 0);
    return ggml_permute(ctx, t, 0, 2, 1, 3);
}

// Puts the graph's tensors in memory of 2 MiB pages, where the system has them.
static void alloc_huge(bench_graph & g) {
    const size_t page  = 2u << 20;
    size_t       bytes = page;
    for (ggml_tensor * t = ggml_get_first_tensor(g.ctx); t; t = ggml_get_next_tensor(g.ctx, t)) {
        bytes += t->view_src ? 0 : GGML_PAD(ggml_nbytes(t), 64);
    }
    bytes    = GGML_PAD(bytes, page);
    g.memory = aligned_alloc(page, bytes);
#if defined(__linux__)
    madvise(g.memory, bytes, MADV_HUGEPAGE);
#endif
    g.buffer = ggml_backend_cpu_buffer_from_ptr(g.memory, bytes);
    ggml_tallocr alloc = ggml_tallocr_new(g.buffer);
    for (ggml_tensor * t = ggml_get_first_tensor(g.ctx); t; t = ggml_get_next_tensor(g.ctx, t)) {
        if (t->view_src) {
            ggml_backend_view_init(t);
        } else {
            ggml_tallocr_alloc(&alloc, t);
        }
    }
}

static bench_graph make_graph(ggml_backend_t backend, const bench_case & c, const bench_options & o) {
    bench_graph g;
    g.kv_bytes = (double) c.n_kv * c.n_head_kv * (ggml_row_size(c.type, c.d_k) + ggml_row_size(c.type, c.d_v));
    g.n_layer  = c.n_q > 16 ? 1 : (int) std::min(64.0, std::max(1.0, o.bytes/g.kv_bytes));

    g.ctx = ggml_init({ ggml_tensor_overhead()*(g.n_layer*16 + 8) + 2*ggml_graph_overhead(), nullptr, true });
    g.stock = ggml_new_graph(g.ctx);
    g.tiled = ggml_new_graph(g.ctx);
    ggml_tensor * mask = ggml_new_tensor_2d(g.ctx, GGML_TYPE_F16, c.n_kv, c.n_q);
    std::vector<ggml_tensor *> leaves;
    for (int i = 0; i < g.n_layer; ++i) {
        ggml_tensor * q = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F32, c.d_k, c.n_head, c.n_q);
        ggml_tensor * k = ggml_new_tensor_2d(g.ctx, c.type, c.d_k*c.n_head_kv, c.n_kv);
        ggml_tensor * v = ggml_new_tensor_2d(g.ctx, c.type, c.d_v*c.n_head_kv, c.n_kv);
        leaves.insert(leaves.end(), { q, k, v });
        for (ggml_cgraph * graph : { g.stock, g.tiled }) {
            ggml_tensor * node = ggml_flash_attn_ext(g.ctx, ggml_permute(g.ctx, q, 0, 2, 1, 3),
                cells_view(g.ctx, k, c.d_k, c.n_head_kv, c.n_kv), cells_view(g.ctx, v, c.d_v, c.n_head_kv, c.n_kv),
                mask, 0.125f, 0.0f, 0.0f);
            node->op_params[RKV_OP_PARAM_TILE] = graph == g.tiled ? o.tile : 0;
            ggml_build_forward_expand(graph, node);
        }
    }
    g.memory = nullptr;
    if (o.huge_pages) {
        alloc_huge(g);
    } else {
        g.buffer = ggml_backend_alloc_ctx_tensors(g.ctx, backend);
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
        fill(leaves[i], (uint32_t) i + 1);
    }
    fill_mask(mask, c);
    return g;
}

static double now(bool cpu_clock) {
    if (cpu_clock) {
        return (double) clock()/CLOCKS_PER_SEC;
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double seconds(ggml_backend_t backend, ggml_cgraph * graph, bool cpu_clock) {
    const double begin = now(cpu_clock);
    ggml_backend_graph_compute(backend, graph);
    return now(cpu_clock) - begin;
}

static std::string label(const bench_case & c) {
    return std::string(c.name) + " " + ggml_type_name(c.type) + " q" + std::to_string(c.n_q) + " kv" + std::to_string(c.n_kv);
}

static void run(ggml_backend_t backend, const bench_case & c, const bench_options & o) {
    bench_graph g = make_graph(backend, c, o);
    for (int n_threads : o.n_threads) {
        test_cpu_set_threads(backend, n_threads);
        double stock = 1e30, tiled = 1e30, read = 1e30;
        for (int i = 0; i < o.n_repeat; ++i) {
            stock = std::min(stock, seconds(backend, g.stock, o.cpu_clock)/g.n_layer);
            tiled = std::min(tiled, seconds(backend, g.tiled, o.cpu_clock)/g.n_layer);
            read  = std::min(read, test_seconds_of_reading(ggml_backend_buffer_get_base(g.buffer), ggml_backend_buffer_get_size(g.buffer), n_threads));
        }
        const double bytes_read = ggml_backend_buffer_get_size(g.buffer)/read;
        printf("%-36s threads %d: stock %9.3f ms %5.1f GB/s, tiled %9.3f ms %5.1f GB/s, ratio %.2f; plain reading %5.1f GB/s, tiled %.2f of it; %.2f Mcells/s\n",
               label(c).c_str(), n_threads, stock*1e3, g.kv_bytes/stock/1e9, tiled*1e3, g.kv_bytes/tiled/1e9, stock/tiled, bytes_read/1e9,
               g.kv_bytes/tiled/bytes_read, c.n_kv/tiled/1e6);
        fflush(stdout);
    }
    ggml_backend_buffer_free(g.buffer);
    free(g.memory);
    ggml_free(g.ctx);
}

static const bench_case cases[] = {
    { "decode d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 1,  4096, false },
    { "decode d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 1, 16384, false },
    { "decode d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 1,  4096, false },
    { "decode d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 1, 16384, false },
    { "decode d128 32/4",   GGML_TYPE_F16, 128, 128,  32,  4, 1,  4096, false },
    { "decode d128 8/8",    GGML_TYPE_F16, 128, 128,   8,  8, 1,  4096, false },
    { "decode mla 16/1",    GGML_TYPE_F16, 576, 512,  16,  1, 1,  4096, false },
    { "decode d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 4,  4096, true  },
    { "decode d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 8,  4096, true  },
    { "decode d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 8,  4096, true  },
    { "decode d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 16, 4096, true  },
    { "decode d64 9/3",     GGML_TYPE_Q8_0, 64,  64,   9,  3, 1,  4096, false },
    { "decode d64 9/3",     GGML_TYPE_Q8_0, 64,  64,   9,  3, 1, 16384, false },
    { "decode d128 32/8",   GGML_TYPE_Q8_0, 128, 128, 32,  8, 1, 16384, false },
    { "decode d128 32/8",   GGML_TYPE_Q8_0, 128, 128, 32,  8, 1,  4096, false },
    { "decode d128 32/8",   GGML_TYPE_Q4_0, 128, 128, 32,  8, 1,  4096, false },
    { "decode d128 32/8",   GGML_TYPE_Q5_1, 128, 128, 32,  8, 1,  4096, false },
    { "decode d128 32/8",   GGML_TYPE_BF16, 128, 128, 32,  8, 1,  4096, false },
    { "prompt d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 512,  512, true },
    { "prompt d64 9/3",     GGML_TYPE_F16,  64,  64,   9,  3, 512, 4096, true },
    { "prompt d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 512,  512, true },
    { "prompt d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8, 512, 4096, true },
    { "prompt d128 32/8",   GGML_TYPE_F16, 128, 128,  32,  8,  33, 4096, true },
    { "prompt d64 9/3",     GGML_TYPE_Q8_0, 64,  64,   9,  3, 512, 4096, true },
};

static int usage(const char * program) {
    fprintf(stderr,
            "usage: %s [--tile CELLS] [--repeat N] [--threads N] [--mib N] [--pages plain|huge] [--clock wall|cpu]\n"
            "       [--only TEXT] [--module libggml-cpu-VARIANT.so] [--case D_K,D_V,HEADS,KV_HEADS,QUERIES,CELLS]...\n", program);
    return 2;
}

int main(int argc, char ** argv) {
    bench_options o;
    std::vector<bench_case> own;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--tile") {
            o.tile = atoi(argv[i + 1]);
        } else if (name == "--repeat") {
            o.n_repeat = atoi(argv[i + 1]);
        } else if (name == "--threads") {
            o.n_threads = { atoi(argv[i + 1]) };
        } else if (name == "--case") {
            bench_case c = { "case", GGML_TYPE_F16, 0, 0, 0, 0, 0, 0, true };
            if (sscanf(argv[i + 1], "%d,%d,%d,%d,%d,%d", &c.d_k, &c.d_v, &c.n_head, &c.n_head_kv, &c.n_q, &c.n_kv) != 6) {
                return usage(argv[0]);
            }
            own.push_back(c);
        } else if (name == "--mib") {
            o.bytes = (size_t) atoi(argv[i + 1]) << 20;
        } else if (name == "--pages") {
            o.huge_pages = strcmp(argv[i + 1], "huge") == 0;
        } else if (name == "--clock") {
            o.cpu_clock = strcmp(argv[i + 1], "cpu") == 0;
        } else if (name == "--module") {
            o.module = argv[i + 1];
        } else if (name == "--only") {
            o.filter = argv[i + 1];
        } else {
            return usage(argv[0]);
        }
    }
    ggml_backend_t backend = test_cpu_init(o.module);
    printf("tile %d cells, least of %d\n", o.tile, o.n_repeat);
    if (own.empty()) {
        own.assign(std::begin(cases), std::end(cases));
    }
    for (const bench_case & c : own) {
        if (label(c).find(o.filter) != std::string::npos) {
            run(backend, c, o);
        }
    }
    ggml_backend_free(backend);
    return 0;
}
