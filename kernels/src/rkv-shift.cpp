// Turning K in both parts of a layer.
//
// Rows of f16 are turned where they lie; of another type they are gathered as f32, spread back, turned, spread, and written by the
// node that writes new rows, in pieces that bound the memory this takes. Only cells that move are touched.

#include "rkv-shift.h"

#include "rkv-rope-node.h"
#include "rkv-shift-path.h"

#include "llama-context.h"
#include "llama-graph.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

namespace {

// The moves of one part of a layer, the same for every layer with this window.
struct part_moves {
    std::vector<int32_t> rows;  // of the part's cells over all streams, ascending
    std::vector<int32_t> moves; // [rows]
};

// One part of one layer.
struct part {
    const rkv_shift_layer * layer;
    ggml_tensor *           k;
    const part_moves *      moved;
    bool                    tail;
    bool                    device; // computes the layer
};

// Rows [begin, end) of a part's moved ones, in one graph with others.
struct piece {
    const part * of;
    size_t       begin;
    size_t       end;
};

// Values that a graph needs, put into its tensors once they have memory.
class shift_input : public llm_graph_input_i {
public:
    explicit shift_input(const llama_kv_cache & cache) : cache(cache) {}

    // What `make` gives; one tensor for all pieces with these rows.
    ggml_tensor * list(ggml_context * ctx, const piece & p, const char * what, const std::function<std::vector<int32_t>()> & make) {
        auto & t = known[{ p.of->moved, p.begin, what }];
        if (!t) {
            std::vector<int32_t> values = make();
            t = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, int64_t(values.size()));
            ggml_set_input(t);
            lists.push_back({ t, std::move(values) });
        }
        return t;
    }

    void set_input(const llama_ubatch *) override {
        for (const auto & list : lists) {
            ggml_backend_tensor_set(list.tensor, list.values.data(), 0, ggml_nbytes(list.tensor));
        }
        if (k_rot && k_rot->buffer) {
            cache.set_input_k_rot(k_rot);
        }
    }

    ggml_tensor * k_rot = nullptr;

private:
    struct filled {
        ggml_tensor *        tensor;
        std::vector<int32_t> values;
    };
    const llama_kv_cache & cache;
    std::vector<filled>    lists;
    std::map<std::tuple<const part_moves *, size_t, std::string>, ggml_tensor *> known;
};

// YaRN scales K when it is written; ggml's RoPE would do so at each turn.
float without_scale(const rkv_rope_seen & rope) {
    return rope.ext_factor != 0.0f ? 1.0f/(1.0f + 0.1f*logf(1.0f/rope.freq_scale)) : 1.0f;
}

class shift_graph {
public:
    shift_graph(llama_context * lctx, const llama_kv_cache & cache, llm_graph_result * res)
        : lctx(lctx), cache(cache), hparams(cache.rkv_model().hparams), res(res), ctx(res->get_ctx()), gf(res->get_gf()),
          input(new shift_input(cache)) {
        input->k_rot = cache.build_input_k_rot(ctx);
    }

    void add(const piece & p, bool on_host) {
        host = on_host;
        if (p.of->k->type == GGML_TYPE_F16) {
            in_place(p);
        } else {
            gathered(p);
        }
    }

    ggml_cgraph * finish() {
        res->add_input(std::move(input));
        return gf;
    }

private:
    llama_context *              lctx;
    const llama_kv_cache &       cache;
    const llama_hparams &        hparams;
    llm_graph_result *           res;
    ggml_context *               ctx;
    ggml_cgraph *                gf;
    std::unique_ptr<shift_input> input;
    bool                         host = false;

    // A node that must run where its part is turned.
    ggml_tensor * node(ggml_tensor * t) {
        if (host) {
            ggml_backend_sched_t sched = lctx->get_sched();
            ggml_backend_sched_set_tensor_backend(sched, t, ggml_backend_sched_get_backend(sched, ggml_backend_sched_get_n_backends(sched) - 1));
        }
        return t;
    }

    ggml_tensor * turn(ggml_tensor * k, ggml_tensor * moves, const rkv_shift_layer & layer) {
        const rkv_rope_seen & rope = *layer.rope;
        ggml_tensor * t = ggml_rope_ext_inplace(ctx, k, moves, rope.factors, rope.n_dims, rope.mode, rope.n_ctx_orig, rope.freq_base, rope.freq_scale,
                rope.ext_factor, without_scale(rope), rope.beta_fast, rope.beta_slow);
        t->op_params[RKV_ROPE_PARAM_MARK] = RKV_ROPE_MARK;
        if (hparams.n_lora_kv > 0) {
            ggml_rope_set_offset(t, int(hparams.n_embd_head_k(layer.il)) - rope.n_dims); // MLA turns the end of a row
        }
        return node(t);
    }

    // From the first row that moves to the last, with moves of 0 between.
    void in_place(const piece & p) {
        const auto &  m     = *p.of->moved;
        ggml_tensor * k     = p.of->k;
        const auto    il    = p.of->layer->il;
        const int32_t first = m.rows[p.begin];
        const int32_t n     = m.rows[p.end - 1] - first + 1;
        ggml_tensor * moves = input->list(ctx, p, "dense", [&] {
            std::vector<int32_t> dense(n, 0);
            for (size_t i = p.begin; i < p.end; ++i) {
                dense[m.rows[i] - first] = m.moves[i];
            }
            return dense;
        });
        ggml_tensor * rows = ggml_view_3d(ctx, k, hparams.n_embd_head_k(il), hparams.n_head_kv(il), n,
                ggml_row_size(k->type, hparams.n_embd_head_k(il)), k->nb[1], size_t(first)*k->nb[1]);
        ggml_build_forward_expand(gf, turn(rows, moves, *p.of->layer));
    }

    ggml_tensor * spread(ggml_tensor * k) {
        if (!input->k_rot) {
            return k;
        }
        ggml_tensor * t = llama_mul_mat_hadamard(ctx, k, input->k_rot);
        node(t->src[0]); // the product; what it returns is a view
        return t;
    }

    void gathered(const piece & p) {
        const auto &  m  = *p.of->moved;
        ggml_tensor * k  = p.of->k;
        const auto    il = p.of->layer->il;
        const int64_t n  = int64_t(p.end - p.begin);
        const auto    of = [&](const std::vector<int32_t> & list) { return std::vector<int32_t>(list.begin() + p.begin, list.begin() + p.end); };
        ggml_tensor * rows  = input->list(ctx, p, "rows", [&] { return of(m.rows); });
        ggml_tensor * moves = input->list(ctx, p, "moves", [&] { return of(m.moves); });
        ggml_tensor * all   = ggml_reshape_2d(ctx, k, k->ne[0], k->ne[1]*k->ne[2]);

        ggml_tensor * t = node(ggml_get_rows(ctx, all, rows));
        t = ggml_reshape_3d(ctx, t, hparams.n_embd_head_k(il), hparams.n_head_kv(il), n);
        t = spread(turn(spread(t), moves, *p.of->layer));
        t = ggml_reshape_2d(ctx, t, k->ne[0], n);
        ggml_build_forward_expand(gf, node(ggml_set_rows(ctx, all, t, rows)));
    }
};

// The moves of the cells [first, first + n_cells) of each stream.
part_moves moves_of(const std::vector<int32_t> & moves, uint32_t kv_size, uint32_t first, uint32_t n_cells) {
    part_moves res;
    for (size_t s = 0; s < moves.size()/kv_size; ++s) {
        for (uint32_t c = 0; c < n_cells; ++c) {
            const int32_t d = moves[s*kv_size + first + c];
            if (d != 0) {
                res.rows.push_back(int32_t(s*n_cells + c));
                res.moves.push_back(d);
            }
        }
    }
    return res;
}

// Bytes of f32 rows that a piece of gathered rows may have, and nodes that it makes.
constexpr size_t GATHER_BYTES  = 4u << 20;
constexpr size_t NODES_A_PIECE = 16;

class runner {
public:
    runner(llama_context * lctx, const llama_kv_cache & cache, const std::vector<rkv_shift_layer> & layers, const std::vector<int32_t> & moves)
        : lctx(lctx), cache(cache) {
        const uint32_t kv_size = cache.get_size();
        for (const auto & layer : layers) {
            if (layer.rope && layer.rope->known) {
                add(layer, layer.k, 0, moves, kv_size, layer.in_tail);
                add(layer, layer.tail, uint32_t(layer.k->ne[1]), moves, kv_size, true);
            }
        }
    }

    void run() {
        if (parts.empty()) {
            return;
        }
        llama_synchronize(lctx); // a device may still read what the host is about to turn
        const rkv_shift_path path = choose();

        // The largest pieces are the first of their parts: what has memory for those has it for all.
        std::vector<piece> pieces = cut(1);
        for (size_t divisor = 4; !graph_of(pieces, 0, path); divisor *= 4) {
            if (divisor > 1024) {
                throw std::runtime_error("rolling-kv: there is no memory on the device to turn K to its new positions; make the window smaller");
            }
            pieces = cut(divisor);
        }
        while (done < pieces.size()) {
            if (!graph_of(pieces, done, path)) {
                throw std::runtime_error("rolling-kv: there is no memory to go on turning K to its new positions; clear the context");
            }
        }
        llama_synchronize(lctx);
        note(path);
    }

private:
    llama_context *        lctx;
    const llama_kv_cache & cache;
    std::map<std::pair<uint32_t, uint32_t>, part_moves> moved; // by first cell and cells
    std::vector<part>      parts;
    size_t                 done = 0; // pieces

    void add(const rkv_shift_layer & layer, ggml_tensor * k, uint32_t first, const std::vector<int32_t> & moves, uint32_t kv_size, bool tail) {
        if (!k || (tail && rkv_fault_get() == RKV_FAULT_MOVE_WINDOW)) {
            return;
        }
        const std::pair<uint32_t, uint32_t> key = { first, uint32_t(k->ne[1]) };
        auto it = moved.find(key);
        if (it == moved.end()) {
            it = moved.emplace(key, moves_of(moves, kv_size, first, key.second)).first;
        }
        if (!it->second.rows.empty()) {
            const auto dev = ggml_backend_dev_type(cache.rkv_model().dev_layer(int(layer.il)));
            parts.push_back({ &layer, k, &it->second, tail, dev != GGML_BACKEND_DEVICE_TYPE_CPU });
        }
    }

    rkv_shift_path choose() const {
        rkv_shift_work work;
        for (const part & p : parts) {
            if (p.tail && p.device) {
                work.bytes += p.k->nb[1]*p.moved->rows.size();
                work.nodes += 1;
                work.type   = p.k->type;
            }
        }
        return rkv_shift_path_choose(lctx, work);
    }

    static bool on_host(const part & p, rkv_shift_path path) { return p.tail && (path == RKV_SHIFT_PATH_HOST || !p.device); }

    std::vector<piece> cut(size_t divisor) const {
        std::vector<piece> res;
        for (const part & p : parts) {
            const size_t n    = p.moved->rows.size();
            const size_t most = p.k->type == GGML_TYPE_F16 ? n : std::max<size_t>(GATHER_BYTES/divisor/(p.k->ne[0]*sizeof(float)), 1);
            for (size_t begin = 0; begin < n; begin += most) {
                res.push_back({ &p, begin, std::min(begin + most, n) });
            }
        }
        return res;
    }

    // Turns as many pieces as one graph holds. False when there was no memory for it, before anything was done. Throws when some rows may
    // have been turned and others not: trying again would turn the former twice.
    bool graph_of(const std::vector<piece> & pieces, size_t from, rkv_shift_path path) {
        ggml_backend_sched_t sched = lctx->get_sched();
        ggml_backend_sched_reset(sched);
        llm_graph_result * res = lctx->get_gf_res_reserve();
        res->reset();

        const size_t most = std::max<size_t>(size_t(res->get_max_nodes())/NODES_A_PIECE, 1);
        const size_t to   = std::min(from + most, pieces.size());
        shift_graph  graph(lctx, cache, res);
        for (size_t i = from; i < to; ++i) {
            graph.add(pieces[i], on_host(*pieces[i].of, path));
        }
        ggml_cgraph * gf = graph.finish();
        if (!ggml_backend_sched_alloc_graph(sched, gf)) {
            return false;
        }
        res->set_inputs(nullptr);
        if (rkv_fault_get() == RKV_FAULT_MOVE_BREAKS || lctx->graph_compute(gf, true) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("rolling-kv: turning K to its new positions broke off half way; clear the context");
        }
        llama_synchronize(lctx); // the next graph's inputs take this one's place
        done = to;
        return true;
    }

    // Counts the rows, and tells each tail's device that its bytes are new.
    void note(rkv_shift_path path) {
        for (const part & p : parts) {
            if (rkv_layer_counters * counters = p.layer->counters) {
                uint64_t & cells = !p.tail ? counters->moved_window : on_host(p, path) ? counters->moved_host : counters->moved_device;
                cells += p.moved->rows.size();
            }
            if (p.tail) {
                uint8_t first;
                ggml_backend_tensor_get(p.k, &first, 0, 1);
                ggml_backend_tensor_set(p.k, &first, 0, 1);
            }
        }
    }
};

} // namespace

bool rkv_shift_turns_nothing(const llama_kv_cache & cache) {
    const llama_hparams & hparams = cache.rkv_model().hparams;
    const auto            ids     = cache.get_layer_ids();
    return hparams.rope_type == LLAMA_ROPE_TYPE_NONE || std::none_of(ids.begin(), ids.end(), [&](uint32_t il) { return hparams.has_rope(il); });
}

void rkv_shift_run(llama_context * lctx, const llama_kv_cache & cache, const std::vector<rkv_shift_layer> & layers, const std::vector<int32_t> & moves) {
    if (!rkv_shift_turns_nothing(cache)) {
        runner(lctx, cache, layers, moves).run();
    }
}
