#pragma once

// One attention node, as what it gives to the stream that computes: which tiles are read where, in which order, and what is merged when.
// Knows no device; a test carries it out on the host.

#include "rkv-cuda-body.h"
#include "rkv-cuda-convert.h"
#include "rkv-cuda-merge.h"

#include "rkv-attn-args.h"
#include "rkv-collect.h"
#include "rkv-host-api.h"

#include <cstddef>

namespace rkv {

// What a node gives to the stream, in order.
class node_queue {
public:
    virtual ~node_queue() = default;

    virtual void tiles(const attn_tiles & a, int n_tiles) = 0;
    virtual void merge(const merge_tiles & a) = 0;

    // Within the device's memory: rows one behind the other.
    virtual void copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) = 0;
    virtual void zero(char * dst, size_t bytes) = 0;
    virtual void convert(const convert_rows & a) = 0;
};

// What a ring brings of one node: copies of its tail's tiles, in the order of (stream, tile).
class brought_tiles {
public:
    virtual ~brought_tiles() = default;

    virtual size_t              count() const = 0;
    virtual const ring_tile &   tile(size_t i) const = 0;
    virtual const slot_layout & layout(size_t i) const = 0;
    virtual const char *        acquire(size_t i) = 0; // what is given to the stream after it sees the tile
    virtual void                release(size_t i) = 0; // what was given to the stream before it has read the tile
};

// The tiles of a node that the host attends to, in the order of (stream, tile), behind those that are brought.
class host_share {
public:
    virtual ~host_share() = default;

    virtual size_t        count() const = 0;
    virtual rkv_host_tile tile(size_t i) const = 0;
    virtual void          start() = 0; // the stream has come to the node: query and mask go down, and the host begins
    virtual void          partials(size_t first, size_t n, float * sums, float * o) = 0; // the stream waits for them, and has them there
};

// A node and where its parts lie.
struct placed_node {
    const attn_args & a;
    bool              in_tail[2] = {};           // the part lies in tail memory: what is in use of it is brought
    brought_tiles *   brought    = nullptr;      // NULL: nothing is
    host_share *      host       = nullptr;      // NULL: the host attends to nothing
    rkv_fault         fault      = RKV_FAULT_NONE;
    const char *      zero_row   = nullptr;      // on the device, for RKV_FAULT_STALE_TILE
};

// Where partials lie behind the node's result, when it has up to TILES_QUERIES_MAX queries.
struct decode_room {
    decode_room(const attn_args & a, int n_q);

    size_t state;  // [rows, 2], of the stream that is computed
    size_t sums;   // [tiles of a round, rows, 2]
    size_t o;      // [tiles of a round, rows, d_v]
    size_t bytes;  // with the result
    int    n_tile; // of a round
};

// Computes the node tile by tile. Partials are kept for as many tiles as fit; then they are merged, and the next tiles begin.
void attend(const placed_node & node, node_queue & queue);

// The node as it is with every cell in one part.
struct gathered {
    // `packed`: K and V get a place of their own, one row behind the other.
    gathered(const attn_args & a, bool packed);
    gathered(const gathered &) = delete;
    gathered & operator=(const gathered &) = delete;

    // Behind so many bytes, which the result takes with what upstream's kernel needs.
    void place(size_t bytes);

    ggml_tensor node;
    ggml_tensor k;
    ggml_tensor v;
    bool        packed;
    bool        v_within_k;
    size_t      v_in_row;  // offset of V in K's rows, where it is a part of them
    size_t      bytes = 0; // with the result

    // What the whole takes, from the start of the result.
    size_t k_at = 0;
    size_t v_at = 0;
};

// Whether the parts of a node can be put into one: of one type, or the tail's can be turned into the window's.
bool can_gather(const attn_args & a);

// Puts every row in use where `g` has it, and zeroes behind them: nobody sees those, but upstream's kernels read them.
void gather(const placed_node & node, const gathered & g, node_queue & queue);

} // namespace rkv
