#include "rkv-cuda-node.h"

#include <algorithm>
#include <cstring>

namespace rkv {

// What partials take at the most, unless one tile's take more.
static constexpr size_t ROUND_BYTES = size_t(32) << 20;
static constexpr size_t ALIGNMENT   = 256;

static size_t aligned(size_t bytes) {
    return GGML_PAD(bytes, ALIGNMENT);
}

decode_room::decode_room(const attn_args & a, int n_q) {
    const size_t rows  = size_t(a.n_head)*n_q;
    const size_t place = rows*(a.d_v + 2)*sizeof(float);
    const size_t fits  = std::max<size_t>(1, ROUND_BYTES/place);
    n_tile = int(std::min({ fits, size_t(a.n_tile), size_t(MERGE_TILES_MAX) }));
    state  = aligned(ggml_nbytes(a.dst));
    sums   = aligned(state + rows*2*sizeof(float));
    o      = aligned(sums + n_tile*rows*2*sizeof(float));
    // A bound that grows with the node: what is reserved for a long one is enough for a shorter one.
    bytes  = sums + ALIGNMENT + std::min(size_t(a.n_tile)*place, std::max(ROUND_BYTES, place));
}

namespace {

// Partials of so many of the host's tiles come up together: the next ones are computed meanwhile.
constexpr int HOST_TILES = 8;

class decode_pass {
public:
    decode_pass(const placed_node & node, node_queue & queue, int stream, int drop_tile)
        : node(node), a(node.a), queue(queue), stream(stream), drop_tile(drop_tile), room(a, a.n_q) {}

    // Tiles [tile0, tile0 + n) of the stream, in ascending order over all calls.
    void add(int tile0, int n, const tile_rows & rows) {
        if (node.fault == RKV_FAULT_STALE_TILE && node.zero_row && a.part_k[1] && tile0 == a.n_tile_win) {
            add_some(tile0, 1, { node.zero_row, node.zero_row, 0, 0, 0, 0, rows.k_type, rows.v_type, 0 });
            add_some(tile0 + 1, n - 1, behind(rows, 1));
            return;
        }
        add_some(tile0, n, rows);
    }

    // Tiles [tile0, tile0 + n) of the stream, the host's from its `first` on.
    void add_host(int tile0, int n, size_t first) {
        GGML_ASSERT(tile0 == round0 + n_made && "tiles are added in their order");
        while (n > 0) {
            const int some = std::min({ n, room.n_tile - n_made, HOST_TILES });
            node.host->partials(first, size_t(some), sums_at(n_made), o_at(n_made));
            n_made += some;
            first  += size_t(some);
            n      -= some;
            if (n_made == room.n_tile) {
                merge();
            }
        }
    }

    // Merges what is left, and ends the rows.
    void finish() {
        while (round0 < a.n_tile) {
            merge();
        }
    }

private:
    const placed_node & node;
    const attn_args &   a;
    node_queue &        queue;
    int                 stream;
    int                 drop_tile;
    decode_room         room;
    int                 round0 = 0; // first tile of the round
    int                 n_made = 0; // tiles of the round

    tile_rows behind(tile_rows rows, int n) const {
        rows.k += int64_t(n)*a.tile*rows.k_nb_cell;
        rows.v += int64_t(n)*a.tile*rows.v_nb_cell;
        return rows;
    }

    float * sums_at(int n) const { return (float *) at(room.sums) + int64_t(n)*a.n_head*a.n_q*2; }
    float * o_at(int n) const { return (float *) at(room.o) + int64_t(n)*a.n_head*a.n_q*a.d_v; }

    char * at(size_t offset) const { return (char *) a.dst->data + offset; }

    void add_some(int tile0, int n, tile_rows rows) {
        GGML_ASSERT(tile0 == round0 + n_made && "tiles are added in their order");
        while (n > 0) {
            const int some = std::min(n, room.n_tile - n_made);
            queue.tiles(tiles_of(tile0, rows), some);
            n_made += some;
            tile0  += some;
            n      -= some;
            rows    = behind(rows, some);
            if (n_made == room.n_tile) {
                merge();
            }
        }
    }

    attn_tiles tiles_of(int tile0, const tile_rows & rows) const {
        attn_tiles t = {};
        t.q          = (const char *) a.q->data + stream*a.q->nb[3];
        t.q_nb_query = a.q->nb[1];
        t.q_nb_head  = a.q->nb[2];
        t.k          = rows.k;
        t.k_nb_cell  = rows.k_nb_cell;
        t.k_nb_head  = rows.k_nb_head;
        t.v          = rows.v;
        t.v_nb_cell  = rows.v_nb_cell;
        t.v_nb_head  = rows.v_nb_head;
        if (a.mask) {
            t.mask          = (const char *) a.mask->data + stream%a.mask->ne[3]*a.mask->nb[3];
            t.mask_nb_query = a.mask->nb[1];
            t.mask_nb_head  = a.mask->nb[2];
            t.mask_heads    = int(a.mask->ne[2]);
        }
        t.cell0    = a.tile_begin(tile0);
        t.n_kv     = a.n_kv;
        t.tile     = a.tile;
        t.d_k      = a.d_k;
        t.d_v      = a.d_v;
        t.n_q      = a.n_q;
        t.n_gqa    = a.n_gqa;
        t.n_head   = a.n_head;
        t.type_k   = rows.k_type;
        t.type_v   = rows.v_type;
        t.scale    = a.scale;
        t.softcap  = a.softcap;
        t.max_bias = a.max_bias;
        t.sums     = sums_at(n_made);
        t.o        = o_at(n_made);
        return t;
    }

    void merge() {
        merge_tiles m = {};
        m.sums         = (const float *) at(room.sums);
        m.o            = (const float *) at(room.o);
        m.state        = (float *) at(room.state);
        m.dst          = (float *) ((char *) a.dst->data + stream*a.dst->nb[3]);
        m.sinks        = a.sinks;
        m.dst_nb_head  = a.dst->nb[1];
        m.dst_nb_query = a.dst->nb[2];
        m.n_tile       = std::min(room.n_tile, a.n_tile - round0);
        m.n_made       = n_made;
        m.n_rows       = a.n_head*a.n_q;
        m.n_q          = a.n_q;
        m.d_v          = a.d_v;
        m.drop         = drop_tile >= round0 && drop_tile < round0 + m.n_tile ? drop_tile - round0 : -1;
        m.swap         = node.fault == RKV_FAULT_SWAP_MERGE && round0 == 0;
        m.first        = round0 == 0;
        m.last         = round0 + m.n_tile == a.n_tile;
        queue.merge(m);
        round0 += m.n_tile;
        n_made  = 0;
    }
};

// Cells of a part, from `begin` on.
int64_t begin_of(const attn_args & a, int part) {
    return part == 0 ? 0 : a.n_win;
}

int64_t end_of(const attn_args & a, int part) {
    return part == 0 ? a.n_win : a.n_kv;
}

tile_rows rows_in_slot(const attn_args & a, const slot_layout & l, const char * slot, int part) {
    tile_rows r = {};
    r.k         = slot;
    r.v         = slot + l.v_offset;
    r.k_nb_cell = l.k_width;
    r.v_nb_cell = l.v_width;
    r.k_nb_head = a.part_k[part]->nb[2];
    r.k_type    = a.part_k[part]->type;
    r.v_type    = a.part_v[part]->type;
    r.v_nb_head = a.part_v[part]->nb[2];
    return r;
}

// The newest tile of the tail, as far as the cache is in use; -1: none.
int last_tail_tile(const placed_node & node) {
    int res = -1;
    for (size_t i = 0; node.brought && node.a.part_k[1] && i < node.brought->count(); ++i) {
        const slot_layout & l = node.brought->layout(i);
        res = std::max(res, l.tile0 + l.n_tile - 1);
    }
    for (size_t i = 0; node.host && node.a.part_k[1] && i < node.host->count(); ++i) {
        res = std::max(res, int(node.host->tile(i).tile));
    }
    return res;
}

int tile_to_drop(const placed_node & node) {
    return node.fault == RKV_FAULT_DROP_TILE ? last_tail_tile(node) : -1;
}

// One stream's cells in use, wherever they lie, in order: use(first cell, number of cells, rows). `next`: of what is brought for the node.
template <typename USE> void walk(const placed_node & node, int stream, size_t & next, USE && use) {
    const attn_args & a = node.a;
    for (int part = 0; part < 2 && a.part_k[part]; ++part) {
        const int64_t begin = begin_of(a, part);
        const int64_t end   = end_of(a, part);
        if (!node.in_tail[part]) {
            if (end > begin) {
                use(begin, end - begin, a.rows(stream, int(begin/a.tile)));
            }
            continue;
        }
        for (; node.brought && next < node.brought->count() && int(node.brought->tile(next).stream) == stream; ++next) {
            const slot_layout & l    = node.brought->layout(next);
            const char *        slot = node.brought->acquire(next);
            use(a.tile_begin(l.tile0), int64_t(node.brought->tile(next).all.k.rows), rows_in_slot(a, l, slot, part));
            node.brought->release(next);
        }
    }
}

} // namespace

void attend(const placed_node & node, node_queue & queue) {
    const attn_args & a    = node.a;
    const int         drop = tile_to_drop(node);
    size_t            next = 0;
    size_t            host = 0; // the next of the host's tiles
    if (node.host) {
        node.host->start();
    }
    for (int s = 0; s < a.n_stream; ++s) {
        decode_pass pass(node, queue, s, drop);
        walk(node, s, next, [&](int64_t cell, int64_t n, const tile_rows & rows) {
            pass.add(int(cell/a.tile), int((n + a.tile - 1)/a.tile), rows);
        });
        const size_t first = host;
        while (node.host && host < node.host->count() && node.host->tile(host).stream == s) {
            ++host;
        }
        if (host > first) {
            pass.add_host(node.host->tile(first).tile, int(host - first), first);
        }
        pass.finish();
    }
}

//
// gathering
//

// Bytes of a cell with all its heads.
static size_t row_width(const ggml_tensor & t) {
    return (t.ne[2] - 1)*t.nb[2] + ggml_row_size(t.type, t.ne[0]);
}

static void pack(ggml_tensor & t, int64_t n_kv) {
    t.ne[1] = n_kv;
    t.nb[1] = row_width(t);
    t.nb[3] = t.nb[1]*n_kv;
}

static size_t bytes_of(const ggml_tensor & t) {
    return t.nb[3]*t.ne[3];
}

gathered::gathered(const attn_args & a, bool packed) : node(*a.dst), k(*a.part_k[0]), v(*a.part_v[0]), packed(packed) {
    node.src[1] = &k;
    node.src[2] = &v;
    node.src[RKV_ATTN_SRC_K_TAIL] = nullptr;
    node.src[RKV_ATTN_SRC_V_TAIL] = nullptr;
    node.op_params[RKV_OP_PARAM_TILE] = 0;

    // An MLA cache: V is some columns of K. Told by the views, for addresses may not be known yet.
    v_within_k = k.view_src && k.view_src == v.view_src;
    v_in_row   = v_within_k ? v.view_offs - k.view_offs : 0;
    if (!packed) {
        return;
    }
    pack(k, a.n_kv);
    if (v_within_k) {
        v.ne[1] = k.ne[1];
        v.nb[1] = k.nb[1];
        v.nb[3] = k.nb[3];
    } else {
        pack(v, a.n_kv);
    }
}

void gathered::place(size_t behind) {
    if (!packed) {
        bytes = behind;
        return;
    }
    k_at  = aligned(behind);
    v_at  = v_within_k ? k_at + v_in_row : aligned(k_at + bytes_of(k));
    bytes = v_within_k ? k_at + bytes_of(k) : v_at + bytes_of(v);
    if (node.data) {
        k.data = (char *) node.data + k_at;
        v.data = (char *) node.data + v_at;
    }
}

// Rows of K or V of one stream, where they lie.
struct rows_from {
    const char * data;
    size_t       nb_cell, nb_head;
    ggml_type    type;
};

// From `cell` of the cache on.
static void put(const ggml_tensor & to, int stream, int64_t cell, const rows_from & from, int64_t rows, node_queue & queue) {
    char * const dst = (char *) to.data + stream*to.nb[3] + cell*to.nb[1];
    if (from.type == to.type) {
        queue.copy(dst, to.nb[1], from.data, from.nb_cell, size_t(rows));
        return;
    }
    convert_rows c = {};
    c.dst         = dst;
    c.src         = from.data;
    c.dst_nb_cell = to.nb[1];
    c.dst_nb_head = to.nb[2];
    c.src_nb_cell = from.nb_cell;
    c.src_nb_head = from.nb_head;
    c.n_cell      = rows;
    c.n_head      = int(to.ne[2]);
    c.n_vec       = int(to.ne[0]/ATTN_VEC);
    c.dst_type    = to.type;
    c.src_type    = from.type;
    queue.convert(c);
}

static void put(const gathered & g, int stream, int64_t cell, const tile_rows & from, int64_t rows, node_queue & queue) {
    put(g.k, stream, cell, { from.k, from.k_nb_cell, from.k_nb_head, from.k_type }, rows, queue);
    if (!g.v_within_k) {
        put(g.v, stream, cell, { from.v, from.v_nb_cell, from.v_nb_head, from.v_type }, rows, queue);
    }
}

static void put_zeroes(const gathered & g, int stream, int64_t begin, int64_t end, node_queue & queue) {
    if (end > begin) {
        queue.zero((char *) g.k.data + stream*g.k.nb[3] + begin*g.k.nb[1], size_t(end - begin)*g.k.nb[1]);
        if (!g.v_within_k) {
            queue.zero((char *) g.v.data + stream*g.v.nb[3] + begin*g.v.nb[1], size_t(end - begin)*g.v.nb[1]);
        }
    }
}

bool can_gather(const attn_args & a) {
    const auto turns = [](const ggml_tensor * from, const ggml_tensor * to) {
        return !from || from->type == to->type || (attn_has_type(from->type) && convert_has_type(to->type) && to->ne[0]%ATTN_VEC == 0);
    };
    return turns(a.part_k[1], a.part_k[0]) && turns(a.part_v[1], a.part_v[0]);
}

void gather(const placed_node & node, const gathered & g, node_queue & queue) {
    const attn_args & a    = node.a;
    const int         bad  = node.fault == RKV_FAULT_STALE_TILE && a.part_k[1] ? a.n_tile_win : tile_to_drop(node);
    size_t            next = 0;
    for (int s = 0; s < a.n_stream; ++s) {
        int64_t done = 0;
        walk(node, s, next, [&](int64_t cell, int64_t n, const tile_rows & rows) {
            GGML_ASSERT(cell == done);
            put(g, s, cell, rows, n, queue);
            done = cell + n;
        });
        put_zeroes(g, s, done, a.n_kv, queue);
        if (bad >= 0) {
            put_zeroes(g, s, a.tile_begin(bad), a.tile_begin(bad) + a.tile_cells(bad), queue);
        }
    }
}

} // namespace rkv
