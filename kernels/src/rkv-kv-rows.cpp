// Reading, writing, copying and clearing rows of a layer in two parts.

#include "rkv-kv-split.h"

#include "rkv-set-rows.h"
#include "rkv-tail-type.h"

#include "llama-impl.h"
#include "llama-io.h"

#include <algorithm>

namespace {

// Calls fn(tensor, first row of it, rows) for each piece of the cells [from, to).
template <typename F>
void for_pieces(ggml_tensor * window, ggml_tensor * tail, uint32_t from, uint32_t to, const F & fn) {
    const uint32_t n_window = window->ne[1];
    if (from < n_window) {
        fn(window, from, std::min(to, n_window) - from);
    }
    if (to > n_window) {
        const uint32_t first = std::max(from, n_window);
        fn(tail, first - n_window, to - first);
    }
}

ggml_tensor * part_view(ggml_context * ctx, ggml_tensor * part, const rkv_part_shape & shape, int64_t n_cells) {
    return ggml_view_4d(ctx, part, shape.n_embd_head, shape.n_head_kv, n_cells, shape.n_stream,
            ggml_row_size(part->type, shape.n_embd_head), part->nb[1], part->nb[2], part->nb[2]*shape.stream0);
}

rkv_local_part local_part(const rkv_rows & rows) {
    return { *rows.of_layer.local, rows.window, rows.stream, rows.row_bytes };
}

std::vector<uint32_t> cells_of(const rkv_ranges & ranges) {
    std::vector<uint32_t> cells;
    for (const auto & range : ranges) {
        for (uint32_t cell = range.first; cell < range.second; ++cell) {
            cells.push_back(cell);
        }
    }
    return cells;
}

} // namespace

ggml_tensor * rkv_get_part(ggml_context * ctx, ggml_tensor * window, const rkv_tail & of_layer, ggml_tensor * tail, const rkv_part_shape & shape) {
    if (of_layer.local) {
        ggml_tensor * res = part_view(ctx, window, shape, window->ne[1]);
        rkv_local_hang_mask(res, *of_layer.local);
        return res;
    }
    if (!tail) {
        return nullptr;
    }

    const int64_t n_window = std::min<int64_t>(window->ne[1], shape.n_kv);
    ggml_tensor * res      = part_view(ctx, window, shape, n_window);
    if (shape.n_kv > n_window) {
        res->src[1] = part_view(ctx, tail, shape, shape.n_kv - n_window);
    }
    return res;
}

ggml_tensor * rkv_view_tail(const ggml_tensor * view) {
    return view->op == GGML_OP_VIEW ? view->src[1] : nullptr;
}

ggml_tensor * rkv_cpy_part(ggml_context * ctx, ggml_tensor * window, const rkv_tail & of_layer, ggml_tensor * tail, ggml_tensor * cur, ggml_tensor * idxs) {
    if (!tail && !of_layer.local) {
        return nullptr;
    }

    // [n_embd_head, n_head, n_tokens] -> [n_embd, n_tokens]
    GGML_ASSERT(ggml_row_size(cur->type, cur->ne[0]) == cur->nb[1]);
    cur = ggml_view_2d(ctx, cur, cur->ne[0]*cur->ne[1], cur->ne[2], cur->nb[2], 0);

    const auto merge_streams = [&](ggml_tensor * t) {
        return ggml_reshape_2d(ctx, t, t->ne[0], t->ne[1]*t->ne[2]);
    };

    if (of_layer.local) {
        return ggml_set_rows(ctx, merge_streams(window), cur, of_layer.local->idxs);
    }
    ggml_tensor * res = ggml_set_rows(ctx, merge_streams(window), cur, idxs);
    res->src[RKV_SET_ROWS_SRC_TAIL]                = merge_streams(tail);
    res->op_params[RKV_SET_ROWS_PARAM_WINDOW]  = window->ne[1];
    res->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] = window->ne[1] + tail->ne[1];
    return res;
}

void rkv_copy_stream(const rkv_tail & tail, uint32_t src, uint32_t dst) {
    if (tail.local) {
        tail.local->streams[dst]     = tail.local->streams[src];
        tail.local->row_of_cell[dst] = tail.local->row_of_cell[src];
    }
    if (!tail.split()) {
        return;
    }
    ggml_backend_tensor_copy(tail.k_stream[src], tail.k_stream[dst]);
    if (tail.v) {
        ggml_backend_tensor_copy(tail.v_stream[src], tail.v_stream[dst]);
    }
}

size_t rkv_nbytes(const ggml_tensor * tail) {
    return tail ? ggml_nbytes(tail) : 0;
}

bool rkv_write_rows(llama_io_write_i & io, const rkv_rows & rows, const rkv_ranges & ranges) {
    if (rows.of_layer.local) {
        rkv_local_state_write(local_part(rows), io, cells_of(ranges));
        return true;
    }
    if (!rows.tail) {
        return false;
    }
    for (const auto & range : ranges) {
        for_pieces(rows.window, rows.tail, range.first, range.second, [&](ggml_tensor * t, size_t row, size_t n) {
            if (t->type != rows.window->type) {
                rkv_tail_rows_write(io, t, rows.window->type, row, n);
            } else {
                io.write_tensor(t, row*rows.row_bytes, n*rows.row_bytes);
            }
        });
    }
    return true;
}

bool rkv_read_ranges(llama_io_read_i & io, const rkv_rows & rows, const rkv_ranges & ranges, const std::function<int32_t(uint32_t)> & pos_of) {
    if (rows.of_layer.local) {
        const std::vector<uint32_t> cells = cells_of(ranges);
        std::vector<int32_t>        pos;
        for (const uint32_t cell : cells) {
            pos.push_back(pos_of(cell));
        }
        rkv_local_state_read(local_part(rows), io, cells, pos);
        return true;
    }
    if (!rows.tail) {
        return false;
    }
    for (const auto & range : ranges) {
        for_pieces(rows.window, rows.tail, range.first, range.second, [&](ggml_tensor * t, size_t row, size_t n) {
            if (t->type != rows.window->type) {
                rkv_tail_rows_read(io, t, rows.window->type, row, n);
            } else {
                io.read_tensor(t, row*rows.row_bytes, n*rows.row_bytes);
            }
        });
    }
    return true;
}

bool rkv_clear_rows(const rkv_rows & rows, const std::vector<uint32_t> & cells) {
    if (rows.of_layer.local) {
        rows.of_layer.local->forget(rows.stream); // of its one sequence
        return true;
    }
    if (!rows.tail) {
        return false;
    }
    for (const uint32_t cell : cells) {
        for_pieces(rows.window, rows.tail, cell, cell + 1, [&](ggml_tensor * t, size_t row, size_t n) {
            llama_clear_tensor_data(t, row*t->nb[1], n*t->nb[1]);
        });
    }
    return true;
}
