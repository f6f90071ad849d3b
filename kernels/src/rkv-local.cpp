#include "rkv-local.h"

#include "rkv-kv-split.h"
#include "rkv-report.h"

#include "llama-impl.h"
#include "llama-io.h"
#include "llama-kv-cache.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace {

constexpr uint32_t ROWS_MULTIPLE = 256;

// A number of streams that no cache has.
constexpr uint32_t STATE_MARK = 0x6c6b7672;

// A view of a local layer's K carries its mask there.
constexpr int VIEW_SRC_MASK = 2;

// The indices of a whole cache carry those of its local layers there, and these the mask, which so gets into every graph that
// has either.
constexpr int IDXS_SRC_ROWS = 0;
constexpr int ROWS_SRC_MASK = 0;

bool loses(const llama_kv_cache & cache, const rkv_local & local, llama_seq_id seq, llama_pos p0, llama_pos p1) {
    const llama_pos newest = cache.seq_pos_max(seq);
    if (newest < p0 || p1 <= newest || p0 <= 0) {
        return false; // nothing goes, the newest stay, or everything goes
    }

    const llama_kv_cells & cells  = cache.get_cells(seq);
    const uint32_t         stream = cache.get_stream(seq);
    for (uint32_t i = 0; i < cells.size(); ++i) {
        if (cells.is_empty(i) || !cells.seq_has(i, seq)) {
            continue;
        }
        const llama_pos pos = cells.pos_get(i);
        if (pos < p0 && int64_t(pos) > int64_t(p0) - local.cells && !local.holds(stream, pos, i)) {
            return true;
        }
    }
    return false;
}

} // namespace

uint32_t rkv_local_ring(uint32_t first, uint32_t cells, uint32_t n_batch) {
    const uint64_t rows = GGML_PAD(uint64_t(first) + cells + n_batch, ROWS_MULTIPLE);
    if (rows > uint64_t(INT32_MAX)) {
        throw std::runtime_error("rolling-kv: local layers of so many cells are not possible; give fewer");
    }
    return uint32_t(rows) - first;
}

void rkv_local::put(uint32_t stream, int32_t pos, uint32_t cell) {
    auto & rows = streams[stream];
    if (const int64_t before = find(stream, cell); before >= 0) {
        rows[before].pos = -1;
    }
    const uint32_t row = row_of(pos);
    rows[row] = { pos, cell };
    row_of_cell[stream][cell] = row;
}

int64_t rkv_local::find(uint32_t stream, uint32_t cell) const {
    const auto it = row_of_cell[stream].find(cell);
    if (it == row_of_cell[stream].end()) {
        return -1;
    }
    const rkv_local_row & row = streams[stream][it->second];
    return row.pos >= 0 && row.cell == cell ? int64_t(it->second) : -1;
}

void rkv_local_build(ggml_context * ctx, rkv_local * local, ggml_tensor * idxs, int64_t n_stream) {
    if (!local) {
        return;
    }
    local->mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, local->rows(), idxs->ne[0]/n_stream, 1, n_stream);
    ggml_set_input(local->mask);
    ggml_set_name(local->mask, "attn_inp_local_mask");

    ggml_tensor * rows = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, idxs->ne[0]);
    ggml_set_input(rows);
    ggml_set_name(rows, "attn_inp_local_idxs");

    local->idxs = rows;
    rows->src[ROWS_SRC_MASK] = local->mask;
    idxs->src[IDXS_SRC_ROWS] = rows;
}

void rkv_local_hang_mask(ggml_tensor * view, const rkv_local & local) {
    view->src[VIEW_SRC_MASK] = local.mask;
}

ggml_tensor * rkv_local_idxs(const ggml_tensor * idxs) {
    return idxs->src[IDXS_SRC_ROWS];
}

static ggml_tensor * mask_of(const ggml_tensor * t) {
    for (; t && (t->op == GGML_OP_VIEW || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_RESHAPE); t = t->src[0]) {
        if (t->op == GGML_OP_VIEW && t->src[VIEW_SRC_MASK]) {
            return t->src[VIEW_SRC_MASK];
        }
    }
    return nullptr;
}

bool rkv_local_view(const ggml_tensor * t) {
    return mask_of(t) != nullptr;
}

ggml_tensor * rkv_local_mask(const ggml_tensor * k, ggml_tensor * mask) {
    ggml_tensor * own = mask_of(k);
    return own ? own : mask;
}

void rkv_local_state_mark(const rkv_local * local, llama_io_write_i & io) {
    if (local) {
        io.write(&STATE_MARK, sizeof(STATE_MARK));
        io.write(&local->digest, sizeof(local->digest));
    }
}

void rkv_local_state_check(rkv_local * local, llama_io_read_i & io, int64_t seq_stream) {
    if (!local) {
        return;
    }
    uint32_t mark   = 0;
    uint32_t digest = 0;
    io.read(&mark, sizeof(mark));
    io.read(&digest, sizeof(digest));
    if (mark != STATE_MARK || digest != local->digest) {
        throw std::runtime_error("rolling-kv: the state was saved without these local layers, or with another length of batch");
    }
    for (uint32_t s = 0; s < local->streams.size(); ++s) {
        if (seq_stream < 0 || seq_stream == s) {
            local->forget(s);
        }
    }
}

void rkv_local_state_write(const rkv_local_part & part, llama_io_write_i & io, const std::vector<uint32_t> & cells) {
    std::vector<uint8_t>  held(cells.size(), 0);
    std::vector<uint32_t> rows(cells.size(), 0);
    for (size_t i = 0; i < cells.size(); ++i) {
        const int64_t row = part.local.find(part.stream, cells[i]);
        held[i] = row >= 0;
        rows[i] = uint32_t(std::max<int64_t>(row, 0));
    }
    io.write(held.data(), held.size());
    for (size_t i = 0; i < cells.size(); ++i) {
        if (held[i]) {
            io.write_tensor(part.rows, rows[i]*part.row_bytes, part.row_bytes);
        }
    }
}

void rkv_local_state_read(const rkv_local_part & part, llama_io_read_i & io, const std::vector<uint32_t> & cells, const std::vector<int32_t> & pos) {
    std::vector<uint8_t> held(cells.size(), 0);
    io.read(held.data(), held.size());
    for (size_t i = 0; i < cells.size(); ++i) {
        if (held[i]) {
            const uint32_t row = part.local.row_of(pos[i]);
            part.local.put(part.stream, pos[i], cells[i]);
            io.read_tensor(part.rows, row*part.row_bytes, part.row_bytes);
        }
    }
}

bool rkv_local_loses(const llama_memory_i * memory, int32_t seq, int32_t p0, int32_t p1) {
    if (p0 < 0) {
        p0 = 0;
    }
    if (p1 < 0) {
        p1 = std::numeric_limits<llama_pos>::max();
    }
    for (const llama_kv_cache * cache : rkv_memory_caches(memory)) {
        const rkv_local * local = nullptr;
        cache->rkv_visit([&](const rkv_layer_view & view) { local = view.tail->local ? view.tail->local.get() : local; });
        if (!local) {
            continue;
        }
        const int32_t n_seq = int32_t(local->streams.size());
        for (int32_t s = seq < 0 ? 0 : seq; s < (seq < 0 ? n_seq : seq + 1); ++s) {
            if (loses(*cache, *local, s, p0, p1)) {
                LLAMA_LOG_WARN("rolling-kv: removing the positions from %d on of sequence %d would leave tokens whose rows the local layers no longer hold; "
                        "nothing was removed\n", p0, s);
                return true;
            }
        }
    }
    return false;
}

void rkv_local_write(rkv_local & local, const rkv_local_step & step, int64_t * idxs) {
    for (uint32_t i = 0; i < step.n_tokens; ++i) {
        const uint32_t row = local.row_of(step.pos[i]);
        local.put(step.stream, step.pos[i], step.cells[i]);
        idxs[i] = int64_t(step.stream)*local.rows() + row;
    }
}
