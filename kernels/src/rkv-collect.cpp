#include "rkv-collect.h"

#include "rkv-attn-node.h"
#include "rkv-step.h"

#include <algorithm>
#include <cstring>

namespace rkv {

static constexpr size_t PART_ALIGNMENT = 256;

static size_t aligned(size_t bytes) {
    return (bytes + PART_ALIGNMENT - 1)/PART_ALIGNMENT*PART_ALIGNMENT;
}

static const rkv_step * step_of(const ggml_tensor * node) {
    const rkv_step * step;
    memcpy(&step, node->op_params + RKV_OP_PARAM_STEP, sizeof(step));
    return step;
}

// Rows of cells [cell, cell + n) of a part, of one stream.
static ring_rows rows_of(const ggml_tensor * part, int64_t cell, int64_t n, int64_t stream) {
    ring_rows r;
    r.src    = (const char *) part->data + cell*part->nb[1] + stream*part->nb[3];
    r.width  = (part->ne[2] - 1)*part->nb[2] + ggml_row_size(part->type, part->ne[0]);
    r.stride = part->nb[1];
    r.rows   = size_t(n);
    return r;
}

// Whether V is a part of K's rows, as in an MLA cache.
static bool v_within_k(const ggml_tensor * k, const ggml_tensor * v) {
    const char * from = (const char *) k->data;
    const char * at   = (const char *) v->data;
    return at >= from && at < from + k->nb[1] && v->nb[1] == k->nb[1] && v->nb[2] == k->nb[2];
}

// Number of the cache's stream that a view begins with.
static int64_t first_stream(const ggml_tensor * part) {
    const ggml_tensor * base = part->view_src ? part->view_src : part;
    return base->ne[2] > 1 ? int64_t(((const char *) part->data - (const char *) base->data)/base->nb[2]) : 0;
}

tail_part tail_of(const ggml_tensor * node) {
    const ggml_tensor * k_tail = node->src[RKV_ATTN_SRC_K_TAIL];
    const int64_t       n_win  = node->src[1]->ne[1];
    if (k_tail) {
        return { k_tail, node->src[RKV_ATTN_SRC_V_TAIL], n_win, n_win + k_tail->ne[1] };
    }
    return { node->src[1], node->src[2], 0, n_win };
}

namespace {

// The node that tiles are added for.
struct node_tiles {
    uint32_t           number;
    int64_t            tile;   // cells of a tile
    int                n_tile;
    std::vector<int> & index;
};

// Cells [begin, stable) are left alone by the step, [stable, live) are written or may be, the others are not in use.
struct cell_range {
    int64_t begin;
    int64_t stable;
    int64_t live;
    int64_t end;
};

cell_range in_use(const ggml_tensor * node, int64_t stream, int64_t begin, int64_t end) {
    const rkv_step * info = step_of(node);
    if (!info || stream >= info->n_stream) {
        return { begin, end, end, end };
    }
    const rkv_step_stream & s    = info->streams[stream];
    const int64_t           live = std::clamp<int64_t>(s.live_end, begin, end);
    const bool              hit  = begin < s.written_end && end > s.written_begin;
    return { begin, hit ? std::clamp<int64_t>(s.written_begin, begin, live) : live, live, end };
}

// One copy, of up to `of_copy` cells.
void collect_copy(const tail_part & part, int64_t stream, const cell_range & cells, int64_t of_copy, const node_tiles & n, collected & step) {
    const int64_t tile   = n.tile;
    const bool    within = v_within_k(part.k, part.v);
    const auto    rows   = [&](int64_t from, int64_t to) {
        return ring_part{ rows_of(part.k, from - part.begin, to - from, stream),
            within ? ring_rows() : rows_of(part.v, from - part.begin, to - from, stream) };
    };
    ring_tile r;
    r.node    = n.number;
    r.stream  = uint32_t(stream);
    r.tile    = uint32_t(cells.begin/tile);
    r.stable  = rows(cells.begin, cells.stable);
    r.written = rows(cells.stable, cells.live);
    r.all     = rows(cells.begin, cells.live);

    // A row's place in its slot depends neither on how many cells are in use nor on how many there are: a copy that was made
    // ahead is read by a later step.
    const ring_part whole = rows(cells.begin, cells.end);
    const size_t    k_end = aligned(of_copy*whole.k.width);
    slot_layout l;
    l.cells      = tile;
    l.tile0      = int(r.tile);
    l.n_tile     = int((cells.live - cells.begin + tile - 1)/tile);
    l.k_width    = whole.k.width;
    l.v_width    = within ? whole.k.width : whole.v.width;
    l.v_within_k = within;
    l.v_offset   = within ? size_t((const char *) part.v->data - (const char *) part.k->data) : k_end;
    l.bytes      = k_end + aligned(of_copy*whole.v.width);
    for (int t = 0; t < l.n_tile; ++t) {
        n.index[size_t(stream)*n.n_tile + l.tile0 + t] = int(step.tiles.size());
    }
    step.layouts.push_back(l);
    step.tiles.push_back(r);
}

} // namespace

bool collect_tiles(const ggml_tensor * node, uint32_t number, uint32_t copy_cells, collected & step, std::vector<int> & index, const uint32_t * ring,
        std::vector<rkv_host_tile> * host) {
    const tail_part part     = tail_of(node);
    const int64_t   tile     = node->op_params[RKV_OP_PARAM_TILE];
    const int64_t   n_stream = node->src[0]->ne[3];
    const int64_t   of_copy  = std::max<int64_t>(copy_cells/tile, 1)*tile;
    node_tiles      n        = { number, tile, int((part.end + tile - 1)/tile), index };
    index.assign(size_t(n_stream)*n.n_tile, NOT_BROUGHT);

    const size_t before = step.tiles.size();
    for (int64_t s = 0; s < n_stream; ++s) {
        const int64_t stream = first_stream(part.k) + s;
        const int64_t split  = ring ? part.begin + std::min<int64_t>(int64_t(ring[s])*tile, part.end - part.begin) : part.end;
        for (int64_t begin = part.begin; begin < split; begin += of_copy) {
            const cell_range cells = in_use(node, stream, begin, std::min(begin + of_copy, split));
            if (cells.live > cells.begin) {
                collect_copy(part, s, cells, of_copy, n, step);
            }
        }
        const int64_t live = in_use(node, stream, part.begin, part.end).live;
        for (int64_t begin = split; begin < live; begin += tile) {
            index[size_t(s)*n.n_tile + begin/tile] = host_tile(int(host->size()));
            host->push_back({ int32_t(s), int32_t(begin/tile) });
        }
    }
    return step.tiles.size() > before || (host && !host->empty());
}

void collect_items(const ggml_tensor * node, std::vector<balance_item> & items) {
    const tail_part part = tail_of(node);
    const int64_t   tile = node->op_params[RKV_OP_PARAM_TILE];
    for (int64_t s = 0; s < node->src[0]->ne[3]; ++s) {
        const int64_t  live = in_use(node, first_stream(part.k) + s, part.begin, part.end).live - part.begin;
        const uint64_t cell = rows_of(part.k, 0, 1, s).width + (v_within_k(part.k, part.v) ? 0 : rows_of(part.v, 0, 1, s).width);
        items.push_back({ uint32_t((live + tile - 1)/tile), uint64_t(live)*cell });
    }
}

} // namespace rkv
