// A node of few queries, split by tiles: every thread walks a run of consecutive tiles over all heads, as they lie in
// memory, and leaves its partials in the work buffer; after a barrier they are merged, split by query rows.

#include "rkv-attn-drivers.h"
#include "rkv-attn-merge.h"
#include "rkv-attn-narrow.h"
#include "rkv-attn-parts.h"
#include "rkv-simd.h"

#include <algorithm>
#include <string.h>
#include <utility>

namespace rkv {

// Partials are kept for as many tiles as fit; then they are merged, and the next tiles begin. This bounds the buffer,
// and keeps what the merge reads in the cache.
static constexpr size_t ROUND_BYTES = 8u << 20;

// Tiles (or parts of tiles) a thread: fewer, and the last thread is waited for.
static constexpr int UNITS_PER_THREAD = 8;

namespace {

struct tiles_buffers {
    float        * state;     // [n_stream, rows, 2]: running maximum and sum; the running output lies in dst
    float        * head_sums; // [places of a round, rows, 2]
    float        * o;         // [places of a round, rows, ld_o]
    tile_mask    * table;     // of this thread: a few mask rows are scanned faster than a barrier is passed
    narrow_scratch scratch;   // of this thread
    size_t         bytes;
};

// A place is a (stream, tile in order of merging): place = stream*n_tile + i.
struct tiles_driver {
    attn_args & a;
    int         ith, nth;
    int         n_rows;        // query rows of a stream
    int         ld_o;
    int64_t     n_place;
    int64_t     round_places;
    int         rows_max;      // query rows of one unit, at most
    row_parts   parts;         // units of a place
    tiles_buffers buf;

    tiles_driver(attn_args & a, int ith, int nth, void * wdata);

    // Places [place0, place1) of a round that begins with place `round`.
    void compute_units(const mask_table & table, int64_t round, int64_t place0, int64_t place1);
    void compute_fed(const mask_table & table, int64_t round, int64_t place);
    void take_partials(const mask_table & table, int64_t round, int64_t place);
    void compute_all(const mask_table & table, int64_t round, int64_t end);
    bool is_fed(int64_t place) const { return a.fed((int) (place / a.n_tile), (int) (place % a.n_tile)); }
    bool by_host(int64_t place) const { return a.by_host((int) (place / a.n_tile), (int) (place % a.n_tile)); }
    void merge_rows(const mask_table & table, int64_t place0, int64_t place1);

    narrow_tile unit(const mask_table & table, int64_t place0, int64_t u) const;
    narrow_tile unit_of(const mask_table & table, int64_t place, int part) const;
    float     * head_sums_of(int64_t place, int row) const { return buf.head_sums + (place*n_rows + row)*2; }
    float     * o_of(int64_t place, int row) const { return buf.o + (place*n_rows + row)*ld_o; }
};

} // namespace

static tiles_buffers carve(const tiles_driver & d, void * wdata) {
    arena mem(wdata);
    tiles_buffers b;
    b.state     = mem.take<float>((size_t) d.a.n_stream * d.n_rows * 2);
    b.head_sums = mem.take<float>((size_t) d.round_places * d.n_rows * 2);
    b.o         = mem.take<float>((size_t) d.round_places * d.n_rows * d.ld_o);
    for (int i = 0; i < d.nth; ++i) {
        tile_mask    * table = mem.take<tile_mask>(mask_table::size_bytes(d.a, d.a.n_q) / sizeof(tile_mask));
        narrow_scratch s     = narrow_scratch::carve(mem, d.a, d.rows_max);
        if (i == d.ith) {
            b.table   = table;
            b.scratch = s;
        }
    }
    b.bytes = mem.bytes();
    return b;
}

tiles_driver::tiles_driver(attn_args & a, int ith, int nth, void * wdata) : a(a), ith(ith), nth(nth) {
    n_rows  = a.n_head * a.n_q;
    ld_o    = round_up_lanes(a.d_v);
    n_place = (int64_t) a.n_stream * a.n_tile;

    const size_t place_bytes = (size_t) n_rows * (ld_o + 2) * sizeof(float);
    round_places = std::min<int64_t>(n_place, std::max<int64_t>(1, ROUND_BYTES / place_bytes));

    // The buffer is sized by the parts that the cache asks for; more threads only make smaller ones.
    parts    = row_parts::of_cache(a);
    rows_max = parts.rows_max();
    if (nth > 1) {
        parts.at_least(a.feed ? nth : ((int64_t) nth*UNITS_PER_THREAD + round_places - 1) / round_places);
    }
    buf = carve(*this, wdata);
}

narrow_tile tiles_driver::unit(const mask_table & table, int64_t place0, int64_t u) const {
    narrow_tile t = unit_of(table, place0 + u / parts.n, (int) (u % parts.n));
    t.rows = a.rows(t.stream, t.tile);
    return t;
}

// A unit whose rows are not known yet.
narrow_tile tiles_driver::unit_of(const mask_table & table, int64_t place, int part) const {
    narrow_tile t = {};
    t.stream = (int) (place / a.n_tile);
    t.tile   = a.tile_at((int) (place % a.n_tile));
    t.row0   = parts.begin(part);
    t.row1   = parts.begin(part + 1);
    t.mask   = table.at(t.stream, 0, t.tile);
    return t;
}

namespace {

// The live units of a thread's run, for reading ahead.
struct ahead_units {
    const tiles_driver & driver;
    const mask_table   & table;
    int64_t              place0, u, end;

    static bool next(void * source, ahead_tile & tile) {
        ahead_units & self = *(ahead_units *) source;
        while (self.u < self.end) {
            const narrow_tile t = self.driver.unit(self.table, self.place0, self.u++);
            if (t.mask.begin < t.mask.end) {
                tile = { t.rows, head_begin(self.driver.a, t), head_end(self.driver.a, t) };
                return true;
            }
        }
        return false;
    }
};

} // namespace

void tiles_driver::compute_units(const mask_table & table, int64_t round, int64_t place0, int64_t place1) {
    const int64_t n     = (place1 - place0) * parts.n;
    const int64_t begin = n * ith / nth;
    const int64_t end   = n * (ith + 1) / nth;

    ahead_units units = { *this, table, place0, begin, end };
    read_ahead  ahead(a, ahead_units::next, &units);
    for (int64_t u = begin; u < end; ++u) {
        const narrow_tile t = unit(table, place0, u);
        if (t.mask.begin < t.mask.end) {
            const int64_t at = place0 - round + u / parts.n;
            narrow_partial(a, t, buf.scratch, ahead, head_sums_of(at, t.row0), o_of(at, t.row0), ld_o);
        }
    }
}

namespace {

// A tile that was brought, for reading ahead within it: what comes next is not there yet.
struct ahead_once {
    ahead_tile tile;
    bool       given;

    static bool next(void * source, ahead_tile & tile) {
        ahead_once & self = *(ahead_once *) source;
        tile = self.tile;
        return !std::exchange(self.given, true);
    }
};

} // namespace

// The threads walk the tiles that are brought together, each over its share of the query rows: a tile is given back soon.
void tiles_driver::compute_fed(const mask_table & table, int64_t round, int64_t place) {
    narrow_tile t = unit_of(table, place, 0);
    if (t.mask.begin < t.mask.end) {
        const tile_rows rows = a.rows_fed(t.stream, t.tile);
        for (int part = ith; part < parts.n; part += nth) {
            t = unit_of(table, place, part);
            t.rows = rows;
            ahead_once once = { { rows, head_begin(a, t), head_end(a, t) }, false };
            read_ahead ahead(a, ahead_once::next, &once);
            narrow_partial(a, t, buf.scratch, ahead, head_sums_of(place - round, t.row0), o_of(place - round, t.row0), ld_o);
        }
    }
    a.release_fed(t.stream, t.tile, nth);
}

// Each thread fetches its share of the rows.
void tiles_driver::take_partials(const mask_table & table, int64_t round, int64_t place) {
    const narrow_tile t = unit_of(table, place, 0);
    rkv_tile_partials p;
    a.feed->partials(a.feed->user, t.stream, t.tile, nth, &p);
    if (t.mask.begin >= t.mask.end) {
        return;
    }
    for (int row = n_rows * ith / nth; row < n_rows * (ith + 1) / nth; ++row) {
        memcpy(head_sums_of(place - round, row), p.sums + 2*row, 2*sizeof(float));
        memcpy(o_of(place - round, row), p.o + row*p.ld_o, a.d_v*sizeof(float));
    }
}

void tiles_driver::compute_all(const mask_table & table, int64_t round, int64_t end) {
    if (!a.feed) {
        compute_units(table, round, round, end);
        return;
    }
    for (int64_t place = round; place < end;) {
        if (is_fed(place)) {
            compute_fed(table, round, place++);
            continue;
        }
        if (by_host(place)) {
            take_partials(table, round, place++);
            continue;
        }
        const int64_t run = place;
        while (place < end && !is_fed(place) && !by_host(place)) {
            ++place;
        }
        compute_units(table, round, run, place);
    }
}

void tiles_driver::merge_rows(const mask_table & table, int64_t place0, int64_t place1) {
    const int64_t n = (int64_t) a.n_stream * n_rows;
    for (int64_t r = n * ith / nth; r < n * (ith + 1) / nth; ++r) {
        const int stream = (int) (r / n_rows);
        const int row    = (int) (r % n_rows);
        const int head   = row / a.n_q;

        const int64_t of_stream = (int64_t) stream * a.n_tile;
        const int64_t begin = std::max(place0, of_stream);
        const int64_t end   = std::min(place1, of_stream + a.n_tile);
        if (begin >= end) {
            continue;
        }
        float     * out   = a.output(stream, head, row % a.n_q);
        float     * saved = buf.state + r*2;
        merge_state state = begin == of_stream ? merge_begin(out, a.d_v) : merge_state{ saved[0], saved[1], out };
        for (int64_t p = begin; p < end; ++p) {
            if (table.is_live(stream, 0, a.tile_at((int) (p - of_stream)))) {
                const size_t at = (size_t) (p - place0) * n_rows + row;
                merge_partial(state, buf.head_sums[at*2], buf.head_sums[at*2 + 1], buf.o + at*ld_o, a.d_v);
            }
        }
        saved[0] = state.max;
        saved[1] = state.sum;
        if (end == of_stream + a.n_tile) {
            merge_finish(state, a.sinks ? a.sinks + head : nullptr, a.d_v);
        }
    }
}

size_t tiles_work_size(const attn_args & a, int n_tasks) {
    attn_args copy = a;
    return tiles_driver(copy, 0, n_tasks, nullptr).buf.bytes;
}

void tiles_compute(attn_args & a, const ggml_compute_params * params) {
    tiles_driver driver(a, params->ith, params->nth, params->wdata);
    GGML_ASSERT(driver.buf.bytes <= params->wsize);

    mask_table table(a, a.n_q, driver.buf.table);
    table.fill(0, 1);
    attn_begin(a, table, params);

    for (int h = 0; h < a.n_head; ++h) {
        driver.buf.scratch.slopes[h] = a.slope(h);
    }
    for (int64_t place = 0; place < driver.n_place; place += driver.round_places) {
        const int64_t end = std::min(place + driver.round_places, driver.n_place);
        if (place > 0) {
            ggml_barrier(params->threadpool);
        }
        driver.compute_all(table, place, end);
        ggml_barrier(params->threadpool);
        driver.merge_rows(table, place, end);
    }
}

} // namespace rkv
