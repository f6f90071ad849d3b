// What is asked for ahead of a walk over tiles: every line of the rows, none beside them, about as far ahead throughout.

#include <set>
#include <vector>

static std::vector<const char *> asked;

#define RKV_PREFETCH_LINE(p) asked.push_back((const char *) (p))
#include "rkv-attn-ahead.cpp"

#include "rkv-test-check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace rkv;

namespace {

struct layout {
    const char * name;
    ggml_type    type;
    int          d;
    int          n_head;        // of a cell
    int          head0, head1;  // that are walked
    size_t       head_gap;      // bytes between the rows of two heads
    int          n_cells, n_tiles;

    size_t row() const { return ggml_row_size(type, d); }
    size_t cell() const { return n_head*(row() + head_gap); }
};

// K and V of some tiles, a part of memory for each.
struct walk {
    const layout &    l;
    std::vector<char> k, v;
    int               given = 0;

    explicit walk(const layout & l) : l(l), k(l.n_tiles*l.n_cells*l.cell() + 4096), v(k.size()) {}

    ahead_tile tile(int i) const {
        const size_t at = i*l.n_cells*l.cell();
        const size_t nb_head = l.row() + l.head_gap;
        return { { k.data() + at, v.data() + at, l.cell(), nb_head, l.cell(), nb_head, l.type, l.type, l.n_cells }, l.head0, l.head1 };
    }

    static bool next(void * source, ahead_tile & tile) {
        walk & self = *(walk *) source;
        if (self.given == self.l.n_tiles) {
            return false;
        }
        tile = self.tile(self.given++);
        return true;
    }

    // Lines that hold a byte of a row that is walked.
    std::set<const char *> lines() const {
        std::set<const char *> all;
        for (int i = 0; i < l.n_tiles; ++i) {
            const ahead_tile t = tile(i);
            for (const char * part : { t.rows.k, t.rows.v }) {
                for (int c = 0; c < l.n_cells; ++c) {
                    for (int h = l.head0; h < l.head1; ++h) {
                        const char * row = part + c*l.cell() + h*(l.row() + l.head_gap);
                        for (const char * p = row - (uintptr_t) row % (uintptr_t) LINE; p < row + l.row(); p += LINE) {
                            all.insert(p);
                        }
                    }
                }
            }
        }
        return all;
    }
};

} // namespace

// As the kernel tells of it: blocks of cells, head by head, some steps at a time.
static void use_part(const layout & l, read_ahead & ahead, int cells_a_step, size_t & used, std::vector<long> & distance) {
    const int block = 64;
    for (int c = 0; c < l.n_cells; c += block) {
        for (int h = l.head0; h < l.head1; ++h) {
            const int end = std::min(c + block, l.n_cells);
            for (int at = c; at < end;) {
                int n = (end - at + cells_a_step - 1)/cells_a_step;
                const int bytes  = cells_a_step*(int) l.row();
                const int period = std::max(2*LINE/bytes, 1); // steps that read a pair of lines
                read_ahead::lines lines = ahead.take(n, bytes, 1, period);
                for (int i = 0; lines.stride > 0 && i < n; i += period) {
                    lines.ask<1>();
                }
                const int cells = std::min(n*cells_a_step, end - at);
                at   += cells;
                used += cells*l.row();
                distance.push_back((long) (asked.size()*LINE) - (long) used);
            }
        }
    }
}

static void test(const layout & l) {
    const std::string name = l.name;
    asked.clear();
    walk       w(l);
    attn_args  a = {};
    a.d_k = a.d_v = l.d;
    read_ahead ahead(a, walk::next, &w);

    size_t used = 0;
    std::vector<long> distance;
    for (int i = 0; i < l.n_tiles; ++i) {
        use_part(l, ahead, 4, used, distance); // scores take four cells at a time
        use_part(l, ahead, 1, used, distance);
    }

    const std::set<const char *> wanted = w.lines();
    const std::set<const char *> found(asked.begin(), asked.end());
    size_t missing = 0, beside = 0;
    for (const char * line : wanted) {
        missing += !found.count(line);
    }
    for (const char * line : found) {
        beside += !wanted.count(line);
    }
    check(missing == 0, name + ": " + std::to_string(missing) + " lines were not asked for, of " + std::to_string(wanted.size()));
    // A step that ends a run may take one line after it.
    check(beside <= size_t(2*l.n_tiles), name + ": " + std::to_string(beside) + " lines were asked for that hold no row");

    // Lines that two runs share are asked for twice; where rows lie apart each has up to one more line than its bytes fill.
    const double per_byte = double(asked.size()*LINE)/double(used);
    check(per_byte < (l.head_gap || l.head1 - l.head0 < l.n_head ? 2.1 : 1.1), name + ": " + std::to_string(per_byte) + " bytes asked for each that is used");

    const size_t total = wanted.size()*LINE;
    bool even = true;
    for (size_t i = 0; i < distance.size()/2; ++i) { // the end has nothing left to ask for
        even = even && distance[i] > 32*1024 && distance[i] < (long) (total > 512*1024 ? 160*1024 : total);
    }
    // Rows that lie apart have lines that are not full, so that lines do not count bytes.
    check(total < 256*1024 || l.head_gap || even, name + ": the distance is not kept");
}

int main() {
    const layout layouts[] = {
        { "heads side by side", GGML_TYPE_F16, 64, 3, 0, 3, 0, 128, 8 },
        { "wide heads", GGML_TYPE_F16, 128, 8, 0, 8, 0, 128, 3 },
        { "rows of 68 bytes", GGML_TYPE_Q8_0, 64, 3, 0, 3, 0, 128, 8 },
        { "rows of 36 bytes", GGML_TYPE_Q4_0, 64, 3, 0, 3, 0, 128, 12 },
        { "rows of 20 bytes that share lines", GGML_TYPE_F16, 10, 2, 0, 2, 0, 96, 40 },
        { "some of the heads", GGML_TYPE_F16, 64, 4, 1, 3, 0, 128, 12 },
        { "heads apart", GGML_TYPE_F16, 64, 2, 0, 2, 4096, 128, 12 },
        { "a short last block", GGML_TYPE_F16, 64, 3, 0, 3, 0, 70, 12 },
        { "fewer bytes than the distance", GGML_TYPE_F16, 64, 1, 0, 1, 0, 32, 2 },
        { "one row of a kind that is compressed", GGML_TYPE_F16, 576, 1, 0, 1, 0, 128, 4 },
    };
    for (const layout & l : layouts) {
        test(l);
    }
    return test_closing();
}
