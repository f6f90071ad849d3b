#pragma once

// Builds one attention node over random cells and runs it on the CPU backend: split at any window, with any number of
// threads, tiled or stock; and says in f64 what it should give.

#include "ggml-backend.h"
#include "ggml.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

enum class mask_kind {
    none,
    causal,      // the last n_q cells are those of the queries
    padded,      // causal, and the last third of the cells is not in use yet
    holes,       // causal, and every third cell belongs to nobody
    stairs,      // later queries see only later cells
    random,      // half of the cells, with finite biases on the others
    first_dead,  // no query sees the first half of the cells
    last_dead,   // nor the second half
    all_dead,
    one_low,     // one cell alone, with a bias of -60000
    distance,    // minus the distance, for ALiBi
    of_heads,    // random, another mask for each head
};

struct attn_case {
    ggml_type type_k = GGML_TYPE_F16;
    ggml_type type_v = GGML_TYPE_F16;
    int d_k = 64, d_v = 64;
    int n_head = 6, n_head_kv = 2;
    int n_q = 1, n_kv = 117, n_stream = 1;
    int tile = 32;

    mask_kind mask    = mask_kind::causal;
    float     sink    = NAN;      // every head's; NAN: no sinks
    float     scale   = 0.0f;     // 0: 1/sqrt(d_k)
    float     softcap = 0.0f;
    float     max_bias = 0.0f;
    bool      v_in_k  = false;    // V is the first d_v elements of K's rows
    float     k_size = 1.0f, v_size = 1.0f;
    bool      v_ones = false;

    // Cells from `tail_from` on are kept in types of their own; a run then has a window of so many cells.
    ggml_type tail_k    = GGML_TYPE_COUNT; // the others' type
    ggml_type tail_v    = GGML_TYPE_COUNT;
    int       tail_from = 0;

    bool      is_mixed() const { return tail_k != GGML_TYPE_COUNT; }
    ggml_type type_of(bool is_v, bool behind) const { return behind && is_mixed() ? (is_v ? tail_v : tail_k) : is_v ? type_v : type_k; }
    std::string name() const;
};

// How to run a case.
struct attn_run {
    int64_t n_win     = -1;       // cells of the window; -1: all
    int     n_threads = 1;
    bool    stock     = false;
    bool    as_tail   = false;    // the first part has the strides of a tail
    bool    poison    = true;     // cells that no query sees hold NaN
    void  * counters  = nullptr;  // rkv_layer_counters
    int     extra     = 0;        // masked cells that are appended
    int64_t flip_cell = -1;       // a cell whose first V byte is flipped
    std::function<void(ggml_tensor *)> compute; // computes the node in the backend's place
};

// How to run a case on a device.
struct device_run {
    ggml_backend_buffer_type_t tail = nullptr; // where the cells behind the window lie
    int64_t n_win  = -1;                       // cells of the window, whole tiles; -1: all; 0: every cell lies in the tail
    bool    poison = true;                     // cells that no query sees hold NaN
    std::vector<ggml_backend_buffer_t> * keep = nullptr; // takes the tail: the device may still read it for a step that will not come
};

class attn_rig {
public:
    attn_rig(const attn_case & c, uint32_t seed);

    // The same on a device, which may say no: then nothing. Parts lie as in a cache, a cell's heads side by side.
    std::vector<float> run_on(ggml_backend_t backend, const device_run & how) const;

    // [d_v, n_head, n_q, n_stream]
    std::vector<float>  run(ggml_backend_t backend, const attn_run & how) const;
    std::vector<double> reference() const;

    const attn_case c;

    std::vector<float> q;         // [d_k, n_q, n_head, n_stream]

private:
    std::vector<uint8_t> k, v;    // rows [head, cell, stream] in the case's types; v is empty when it lies in k
    std::vector<uint8_t> k_tail, v_tail; // the same in the tail's types, when they are others
    std::vector<float>   k32, v32;
    std::vector<float>   mask;    // [n_kv, n_q, planes, n_stream]
    std::vector<char>    seen;    // [n_kv, n_stream]: whether a query sees the cell

    int   n_plane() const { return c.mask == mask_kind::of_heads ? c.n_head : 1; }
    float mask_at(int stream, int head, int iq, int cell) const;
    void  make_mask(uint32_t seed);
    float scale() const { return c.scale != 0.0f ? c.scale : 1.0f/std::sqrt((float) c.d_k); }

    struct graph;
    ggml_tensor * part(graph & g, ggml_type type, bool is_v, int64_t n_cells, bool in_tail) const;
    std::vector<uint8_t> keep_tail(ggml_type type, int d, std::vector<float> x, std::vector<float> & all) const;
    void fill_part(ggml_tensor * t, bool is_v, int64_t cell0, const attn_run & how) const;
    void build(graph & g, const attn_run & how) const;
    void fill(graph & g, const attn_run & how) const;
    void put_rows(ggml_tensor * rows, bool is_v, int64_t cell0, bool poison) const;
};

// Root mean square of the difference, over that of the reference.
double relative_error(const std::vector<float> & x, const std::vector<double> & ref);
