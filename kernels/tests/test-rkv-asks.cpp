// What the decode kernel asks for ahead while it computes: every line of the rows that it reads, once, and about as far ahead throughout.
// Built once for each width of vectors: a loop asks by how much it reads in a step, and that depends on the width.

#include "rkv-attn-narrow.h"
#include "rkv-test-check.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

using namespace rkv;

// How often, by line. Made at its first use: before main nothing may run that the processor may not have.
static std::unordered_map<uintptr_t, size_t> & asked() {
    static std::unordered_map<uintptr_t, size_t> lines;
    return lines;
}

void rkv_asked(const void * line) {
    ++asked()[(uintptr_t) line / (uintptr_t) LINE];
}

// The CPU backend's table, which its module keeps.
extern "C" float ggml_table_f32_f16[1 << 16];
float ggml_table_f32_f16[1 << 16];

// A line is asked for about 64 KiB before it is used; a row that is read out of order, or two columns, so much sooner or later.
static constexpr size_t NEAREST  = 32*1024;
static constexpr size_t FARTHEST = 128*1024;

namespace {

struct asks_case {
    ggml_type type;
    int       d, n_head, n_head_kv;
    int       tile, n_tile;

    size_t row() const { return ggml_row_size(type, d); }
    size_t cell() const { return n_head_kv*row(); }
    size_t tile_bytes() const { return 2*tile*cell(); }
    std::string name() const {
        return std::string(ggml_type_name(type)) + " d " + std::to_string(d) + " heads " + std::to_string(n_head) + "/" +
               std::to_string(n_head_kv) + " tile " + std::to_string(tile);
    }
};

// Tiles of K and of V, each part one after the other.
struct cache {
    const asks_case & c;
    std::vector<char> k, v;
    int               given = 0;

    explicit cache(const asks_case & c) : c(c), k(c.n_tile*c.tile*c.cell()), v(k.size()) {}

    tile_rows rows(int i) const {
        const size_t at = i*c.tile*c.cell();
        return { k.data() + at, v.data() + at, c.cell(), c.row(), c.cell(), c.row(), c.type, c.type, c.tile };
    }
    // Lines of both parts that were never asked for, and how often any was.
    std::pair<size_t, size_t> missing_and_asked() const {
        size_t missing = 0, times = 0;
        for (const std::vector<char> * part : { &k, &v }) {
            const uintptr_t first = (uintptr_t) part->data() / LINE, last = (uintptr_t) (part->data() + part->size() - 1) / LINE;
            for (uintptr_t line = first; line <= last; ++line) {
                const auto it = asked().find(line);
                missing += it == asked().end();
                times   += it == asked().end() ? 0 : it->second;
            }
        }
        return { missing, times };
    }
    static bool next(void * source, ahead_tile & tile) {
        cache & self = *(cache *) source;
        if (self.given == self.c.n_tile) {
            return false;
        }
        tile = { self.rows(self.given++), 0, self.c.n_head_kv };
        return true;
    }
};

} // namespace

// Returns how many bytes were asked for beyond those that were used, at the end of each tile but the last ones.
static std::vector<double> attend(const asks_case & c, cache & from) {
    std::vector<float> q(c.d*c.n_head, 1.0f);
    ggml_tensor node = {};
    node.data  = q.data();
    node.nb[0] = sizeof(float);
    node.nb[1] = c.d*c.n_head*sizeof(float);
    node.nb[2] = c.d*sizeof(float);

    attn_args a = {};
    a.q         = &node;
    a.d_k       = a.d_v = c.d;
    a.n_q       = a.n_stream = 1;
    a.n_head    = c.n_head;
    a.n_head_kv = c.n_head_kv;
    a.n_gqa     = c.n_head / c.n_head_kv;
    a.n_kv      = a.n_win = (int64_t) c.tile*c.n_tile;
    a.tile      = c.tile;
    a.scale     = 0.125f;

    arena count(nullptr);
    narrow_scratch::carve(count, a, c.n_head);
    std::vector<char> memory(count.bytes() + 64);
    arena          mem(memory.data());
    narrow_scratch s = narrow_scratch::carve(mem, a, c.n_head);
    std::fill(s.slopes, s.slopes + c.n_head, 1.0f);

    const int ld = round_up_lanes(c.d);
    std::vector<float> sums(2*c.n_head), o(c.n_head*ld);
    std::vector<double> distance;
    read_ahead ahead(a, cache::next, &from);
    for (int i = 0; i < c.n_tile; ++i) {
        narrow_tile t = {};
        t.tile = i;
        t.row1 = c.n_head;
        t.rows = from.rows(i);
        t.mask.end   = c.tile;
        t.mask.plain = true;
        narrow_partial(a, t, s, ahead, sums.data(), o.data(), ld);
        if ((c.n_tile - 1 - i)*c.tile_bytes() > FARTHEST) {
            distance.push_back((double) from.missing_and_asked().second*LINE - (double) (i + 1)*c.tile_bytes());
        }
    }
    return distance;
}

static void test(const asks_case & c) {
    cache from(c);
    asked().clear();
    const std::vector<double> distance = attend(c, from);
    const auto [missing, times] = from.missing_and_asked();
    const auto [least, most] = std::minmax_element(distance.begin(), distance.end());

    check(missing == 0, c.name() + ": " + std::to_string(missing) + " lines were not asked for");
    const double per_byte = times*LINE/(2.0*from.k.size());
    check(per_byte < 1.1, c.name() + ": " + std::to_string(per_byte) + " bytes were asked for each that is read");
    check(distance.size() >= 4 && *least > NEAREST && *most < FARTHEST,
          c.name() + ": asked " + std::to_string(*least) + " to " + std::to_string(*most) + " bytes ahead");
}

int asks_test() {
    for (int i = 0; i < 1 << 16; ++i) {
        ggml_table_f32_f16[i] = ggml_fp16_to_fp32((ggml_fp16_t) i);
    }
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
        test({ type, 64, 9, 3, 128, 32 });
        test({ type, 128, 32, 8, 128, 16 });
        test({ type, 128, 8, 8, 96, 16 });
        test({ type, 96, 12, 4, 352, 16 });
        test({ type, 576, 4, 1, 128, 16 });
    }
    return test_closing();
}
