// A step that is cut where attention reads a tail: every node is in one piece, attention over a tail is by itself, and no other piece is
// without a kernel.

#include "rkv-graph-pieces.h"
#include "rkv-test-check.h"

#include "ggml-cpp.h"
#include "ggml-impl.h"

#include <string>
#include <vector>

using namespace rkv;

namespace {

constexpr int N = 32;

// Nodes of no data, one after the other: 'k' is computed, 'v' is a view, '-' is not computed, 'T' reads a tail.
struct graph {
    ggml_context_ptr ctx;
    ggml_cgraph *    g;

    explicit graph(const std::string & nodes) {
        ctx.reset(ggml_init({ 512*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true }));
        g = ggml_new_graph(ctx.get());
        ggml_tensor * x = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, N);
        for (const char c : nodes) {
            x = c == 'v' ? ggml_view_1d(ctx.get(), x, N, 0) : c == 'T' ? ggml_sqr(ctx.get(), x) : ggml_abs(ctx.get(), x);
            ggml_build_forward_expand(g, x);
        }
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (nodes[i] == '-') {
                g->nodes[i]->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
            }
        }
    }
};

bool reads_tail(const ggml_tensor * node) {
    return node->op == GGML_OP_SQR;
}

} // namespace

// As text: "kvk T vkk", where a piece that reads a tail is in brackets.
static std::string cut(const std::string & nodes) {
    const graph g(nodes);
    std::string text;
    int at = 0;
    for (const graph_piece & p : graph_pieces(g.g, reads_tail)) {
        check(p.begin == at && p.end > p.begin, nodes + ": pieces follow each other");
        at = p.end;
        const std::string inside = nodes.substr(p.begin, p.end - p.begin);
        text += (text.empty() ? "" : " ") + (p.reads_tail ? "[" + inside + "]" : inside);
    }
    check(at == int(nodes.size()), nodes + ": every node is in a piece");
    return text;
}

static void cuts(const std::string & nodes, const std::string & expected) {
    const std::string found = cut(nodes);
    check(found == expected, nodes + ": " + found + ", not " + expected);
}

// Whatever the nodes: what is not by itself has a kernel, and a tail is never beside one.
static void any_step() {
    unsigned seed = 1;
    for (int i = 0; i < 2000; ++i) {
        std::string nodes;
        for (int n = 1 + i%40; n > 0; --n) {
            seed = seed*1664525u + 1013904223u;
            nodes += "kkv-Tv"[(seed >> 16)%6];
        }
        const graph g(nodes);
        const std::vector<graph_piece> pieces = graph_pieces(g.g, reads_tail);
        bool good = true;
        for (size_t j = 0; j < pieces.size(); ++j) {
            const std::string inside = nodes.substr(pieces[j].begin, pieces[j].end - pieces[j].begin);
            const bool tail = inside.find('T') != std::string::npos;
            const bool other = inside.find('k') != std::string::npos;
            good = good && tail == pieces[j].reads_tail && !(tail && other) && (tail || other || pieces.size() == 1);
            good = good && (j == 0 || pieces[j - 1].reads_tail != pieces[j].reads_tail);
        }
        check(good, "pieces of " + nodes + ": " + cut(nodes));
    }
}

int main() {
    cuts("", "");
    cuts("k", "k");
    cuts("kvk-k", "kvk-k");
    cuts("T", "[T]");
    cuts("vvv", "vvv");
    cuts("kvTk", "kv [T] k");
    cuts("vkkTvkkTvkk", "vkk [Tv] kk [Tv] kk");
    cuts("kTvTk", "k [TvT] k");
    cuts("vTk", "[vT] k");
    cuts("k-T-k", "k- [T-] k");
    any_step();
    return test_closing();
}
