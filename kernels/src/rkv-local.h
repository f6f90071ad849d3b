#pragma once

// Local layers: layers whose attention is limited to the first tokens and the newest ones of a sequence. They keep the rows of these
// alone, in device memory, and have no tail. Unlike a window this changes what the model says; it is chosen layer by layer.
//
// A row's place is a matter of its position: positions [0, first) lie in rows of their own, the others go round in a ring that is
// long enough for what the oldest query of a batch sees. So such a layer needs a stream of one sequence.

#include "ggml.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

class llama_io_read_i;
class llama_io_write_i;
struct llama_memory_i;

struct rkv_local_row {
    int32_t  pos  = -1; // of the token whose K and V lie there; -1: none was written yet
    uint32_t cell = 0;  // of the cache
};

// What the local layers of one cache share.
struct rkv_local {
    uint32_t first; // tokens at the beginning that every query sees
    uint32_t cells; // newest tokens that a query sees, itself among them
    uint32_t ring;  // rows that the positions from `first` on go round in

    bool alibi;

    uint32_t digest; // of the above and of the layers: what must agree between a state and its reader

    std::vector<std::vector<rkv_local_row>> streams; // [n_stream][rows]
    std::vector<std::unordered_map<uint32_t, uint32_t>> row_of_cell; // [n_stream]: the row that a cell was put into last

    // Inputs of the graph that was built last.
    ggml_tensor * idxs = nullptr; // [n_tokens] i64: rows over all streams
    ggml_tensor * mask = nullptr; // [rows, n_tokens/n_stream, 1, n_stream] f16

    uint32_t rows() const { return first + ring; }

    uint32_t row_of(int32_t pos) const { return uint32_t(pos) < first ? pos : first + (uint32_t(pos) - first) % ring; }

    // Whether the row of a token that lies in `cell` is still there.
    bool holds(uint32_t stream, int32_t pos, uint32_t cell) const {
        const rkv_local_row & row = streams[stream][row_of(pos)];
        return row.pos == pos && row.cell == cell;
    }

    void forget(uint32_t stream) { streams[stream].assign(rows(), {}); }

    // Notes that a row holds a token now. A row of what the cell held before, at another position, holds nothing any more.
    void put(uint32_t stream, int32_t pos, uint32_t cell);

    // Row of a cell, or -1.
    int64_t find(uint32_t stream, uint32_t cell) const;
};

// Rows of a ring that is enough for `cells` newest tokens of the oldest query of a batch of `n_batch`, and for a batch that is taken
// back; all rows together are a multiple of 256, as attention kernels want it.
uint32_t rkv_local_ring(uint32_t first, uint32_t cells, uint32_t n_batch);

// The state of a cache's local layers, or NULL.
template <typename Layers>
rkv_local * rkv_local_of(const Layers & layers) {
    for (const auto & layer : layers) {
        if (layer.tail.local) {
            return layer.tail.local.get();
        }
    }
    return nullptr;
}

// Makes the inputs of local layers, and hangs the rows' indices on those of the whole cache.
void rkv_local_build(ggml_context * ctx, rkv_local * local, ggml_tensor * idxs, int64_t n_stream);

// Hangs the mask on a view of a local layer's K or V.
void rkv_local_hang_mask(ggml_tensor * view, const rkv_local & local);

// The rows' indices that hang on those of the whole cache.
ggml_tensor * rkv_local_idxs(const ggml_tensor * idxs);

// Whether a tensor is, through views alone, the rows of a local layer.
bool rkv_local_view(const ggml_tensor * t);

// The mask of a local layer whose K is `k`, or `mask` itself.
ggml_tensor * rkv_local_mask(const ggml_tensor * k, ggml_tensor * mask);

// Begins a state: one of a cache with local layers is marked, so that only a cache with the same ones takes it. `seq_stream` is the
// stream of the sequence that is restored, or -1: all of them. Throws std::runtime_error.
void rkv_local_state_mark(const rkv_local * local, llama_io_write_i & io);
void rkv_local_state_check(rkv_local * local, llama_io_read_i & io, int64_t seq_stream);

// One part (K or V, of one stream) of a local layer in a state: for each cell whether its row is held, then the rows that are.
struct rkv_local_part {
    rkv_local &   local;
    ggml_tensor * rows; // [n_embd, rows]
    uint32_t      stream;
    size_t        row_bytes;
};
void rkv_local_state_write(const rkv_local_part & part, llama_io_write_i & io, const std::vector<uint32_t> & cells);

// `pos` [cells] are the positions of the cells that the rows are for.
void rkv_local_state_read(const rkv_local_part & part, llama_io_read_i & io, const std::vector<uint32_t> & cells, const std::vector<int32_t> & pos);

// Whether removing the positions [p0, p1) would leave a sequence whose newest tokens are not all held by its local layers.
bool rkv_local_loses(const llama_memory_i * memory, int32_t seq, int32_t p0, int32_t p1);

// One stream's tokens of a step.
struct rkv_local_step {
    uint32_t         stream;   // of the cache
    const uint32_t * cells;    // [n_tokens]
    const int32_t *  pos;      // [n_tokens]
    uint32_t         n_tokens;
};

// Notes the rows that a step writes and gives their indices.
void rkv_local_write(rkv_local & local, const rkv_local_step & step, int64_t * idxs);

// Fills one stream's mask; `live(cell, pos)` says whether the cell holds the token of this position.
template <typename Live>
void rkv_local_fill(const rkv_local & local, const rkv_local_step & step, ggml_fp16_t * mask, const Live & live) {
    const auto & rows = local.streams[step.stream];

    std::vector<int32_t> at(rows.size()); // positions, or -1 where nothing is to be seen
    for (size_t r = 0; r < rows.size(); ++r) {
        at[r] = rows[r].pos >= 0 && live(rows[r].cell, rows[r].pos) ? rows[r].pos : -1;
    }

    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
    const ggml_fp16_t shown  = ggml_fp32_to_fp16(0.0f);
    for (uint32_t i = 0; i < step.n_tokens; ++i) {
        const int32_t own = step.pos[i];
        ggml_fp16_t * out = mask + i*rows.size();
        for (size_t r = 0; r < rows.size(); ++r) {
            const int32_t back = own - at[r];
            const bool    seen = at[r] >= 0 && back >= 0 && (uint32_t(at[r]) < local.first || uint32_t(back) < local.cells);
            out[r] = !seen ? hidden : local.alibi ? ggml_fp32_to_fp16(-float(back)) : shown;
        }
    }
}

// Fills the inputs that hang on `idxs`. `sinfo` is the cache's slot_info, `v_cells` its cells by stream, `pos` the tokens' positions.
template <typename SlotInfo, typename Cells>
void rkv_local_set(rkv_local * local, const ggml_tensor * idxs, const int32_t * pos, const SlotInfo & sinfo, const Cells & v_cells) {
    ggml_tensor * rows = local ? rkv_local_idxs(idxs) : nullptr;
    if (!rows) {
        return;
    }
    ggml_tensor * mask = rows->src[0];

    const uint32_t n = sinfo.size();
    std::vector<int64_t> unread(n); // where the graph stores no local layer's rows
    for (uint32_t s = 0; s < sinfo.n_stream(); ++s) {
        const auto & cells = v_cells[sinfo.strm[s]];
        const rkv_local_step step = { uint32_t(sinfo.strm[s]), sinfo.idxs[s].data(), pos + s*n, n };
        rkv_local_write(*local, step, rows->data ? (int64_t *) rows->data + s*n : unread.data());
        if (mask->data) {
            rkv_local_fill(*local, step, (ggml_fp16_t *) mask->data + s*n*mask->ne[0],
                    [&](uint32_t cell, int32_t at) { return !cells.is_empty(cell) && cells.pos_get(cell) == at; });
        }
    }
}
