#include "rkv-planner.h"

#include "rkv-plan.h"
#include "rkv-planner-api.h"
#include "rkv-planner-step.h"

#include <algorithm>
#include <cmath>

namespace rkv {

uint64_t usable_bytes(uint64_t free_bytes, uint64_t reserve) {
    const uint64_t kept = reserve ? reserve : free_bytes/8 + (uint64_t(512) << 20);
    return free_bytes > kept ? free_bytes - kept : 0;
}

uint32_t fit_window(const window_need & need) {
    const uint64_t left  = need.budget > need.fixed ? need.budget - need.fixed : 0;
    const uint64_t cells = need.row ? std::min<uint64_t>(left/need.row, need.kv_size) : need.kv_size;
    return uint32_t(cells >= need.kv_size ? need.kv_size : cells/need.tile*need.tile);
}

} // namespace rkv

namespace {

struct row_bytes {
    uint64_t k;
    uint64_t v;
    uint64_t all() const { return k + v; }
};

row_bytes window_row(const rkv_plan_layer & l) {
    return { ggml_row_size(l.type_k, l.k_values), ggml_row_size(l.type_v, l.v_values) };
}

row_bytes tail_row(const rkv_plan_layer & l) {
    return { ggml_row_size(l.tail_type_k, l.k_values), ggml_row_size(l.tail_type_v, l.v_values) };
}

// Seconds a byte of this layer's tail takes the host's kernel; 0: unknown.
double host_s_per_byte(const rkv_rates & rates, const rkv_plan_layer & l) {
    const row_bytes row = tail_row(l);
    const double    k   = rates.host_kernel[l.tail_type_k];
    const double    v   = l.v_values ? rates.host_kernel[l.tail_type_v] : k;
    return k > 0 && v > 0 && row.all() > 0 ? (row.k/k + row.v/v)/double(row.all()) : 0;
}

// One question, with what follows from it.
class planning {
public:
    planning(const rkv_rates & rates, const rkv_plan_model & model, const rkv_plan_ask & ask)
        : rates(rates), model(model), ask(ask), tile(ask.tile_cells ? ask.tile_cells : RKV_TILE_DEFAULT), n_stream(std::max(1u, ask.n_stream)) {}

    rkv_plan_result make() {
        place();
        stage();
        weigh();
        time();
        return res;
    }

private:
    const rkv_rates &      rates;
    const rkv_plan_model & model;
    const rkv_plan_ask &   ask;
    const uint32_t         tile;
    const uint32_t         n_stream;
    rkv_plan_result        res = {};

    uint64_t fixed_bytes() const { return model.weight_bytes + model.beside_bytes; }

    uint64_t row_sum(row_bytes (*of)(const rkv_plan_layer &)) const {
        uint64_t sum = 0;
        for (uint32_t il = 0; il < model.n_layer; ++il) {
            sum += of(model.layers[il]).all()*n_stream;
        }
        return sum;
    }

    // Which cells lie where.
    void place() {
        rkv::window_need need;
        need.row     = row_sum(window_row);
        need.kv_size = uint32_t(std::min<uint64_t>(ask.n_ctx, UINT32_MAX));
        need.tile    = tile;
        const uint64_t free = rates.device_bytes > model.weight_bytes ? rates.device_bytes - model.weight_bytes : 0;
        need.budget  = ask.vram_target ? ask.vram_target : rkv::usable_bytes(free, ask.reserve_bytes);
        need.fixed   = model.beside_bytes;

        const bool given = ask.window_cells >= 0;
        const bool all   = ask.window_cells == RKV_WINDOW_RESIDENT || (given && uint64_t(ask.window_cells) >= ask.n_ctx);
        res.window_cells = all ? need.kv_size : given ? uint64_t(ask.window_cells)/tile*tile : rkv::fit_window(need);
        res.window_bytes = res.window_cells*need.row;
        res.tail_cells   = ask.n_ctx - std::min(ask.n_ctx, res.window_cells);
        res.tail_bytes   = res.tail_cells*row_sum(tail_row);
        res.fit          = res.tail_cells ? RKV_PLAN_WINDOW : RKV_PLAN_RESIDENT;
        res.best         = RKV_PLAN_STREAM;
    }

    // The ring, as a device chooses it when a context is made.
    void stage() {
        if (res.tail_cells == 0 || model.n_layer == 0) {
            return;
        }
        rkv_staging_need need = {};
        need.tile_cells  = tile;
        need.cells_layer = res.tail_cells;
        need.cells_all   = res.tail_cells*n_stream*model.n_layer;
        for (uint32_t il = 0; il < model.n_layer; ++il) {
            need.k_row_bytes = std::max(need.k_row_bytes, tail_row(model.layers[il]).k);
            need.v_row_bytes = std::max(need.v_row_bytes, tail_row(model.layers[il]).v);
        }
        const uint64_t taken = fixed_bytes() + res.window_bytes + model.compute_bytes;
        const uint64_t free  = rates.device_bytes > taken ? rates.device_bytes - taken : 0;
        const rkv::staging_plan plan = rkv::plan_staging(ask.staging, need, free, { rates.to_device_pinned, rates.link_latency_s });
        res.copy_cells = plan.copy_cells;
        res.ring_depth = plan.depth;
        res.slot_bytes = plan.slot_bytes;
    }

    // Whether it fits.
    void weigh() {
        res.device_bytes = fixed_bytes() + res.window_bytes + model.compute_bytes + res.ring_depth*res.slot_bytes;
        if (res.device_bytes > rates.device_bytes) {
            res.fit           = RKV_PLAN_NO_DEVICE;
            res.missing_bytes = res.device_bytes - rates.device_bytes;
        } else if (res.tail_bytes > rates.host_bytes) {
            res.fit           = RKV_PLAN_NO_HOST;
            res.missing_bytes = res.tail_bytes - rates.host_bytes;
        }
    }

    double device_s(double bytes) const { return rates.device_memory > 0 ? bytes/rates.device_memory : 0; }
    double attention_s(double bytes) const { return rates.device_attention > 0 ? bytes/rates.device_attention : device_s(bytes); }

    rkv::step_model step_of(uint64_t depth) const {
        rkv::step_model step;
        step.link_bytes_s = rates.to_device_pinned;
        step.memory_bytes_s = rates.host_read;
        step.latency_s    = rates.link_latency_s;
        step.slots        = std::max(1u, res.ring_depth);
        step.node_s       = model.n_layer ? (rates.device_launch_s*model.n_node + device_s(double(model.step_weight_bytes)))/model.n_layer : 0;
        const uint64_t in_window = std::min(depth, res.window_cells);
        const uint64_t in_tail   = depth - in_window;
        for (uint32_t il = 0; il < model.n_layer; ++il) {
            const rkv_plan_layer & l = model.layers[il];
            rkv::step_layer layer;
            layer.window_s        = attention_s(double(in_window*n_stream*window_row(l).all()));
            layer.tail_bytes      = double(in_tail*n_stream*tail_row(l).all());
            layer.row_bytes       = in_tail ? double(n_stream*tail_row(l).all()) : 0;
            layer.copy_bytes      = double(std::max(1u, res.copy_cells)*tail_row(l).all());
            layer.device_s_byte   = attention_s(1.0);
            layer.host_s_byte     = host_s_per_byte(rates, l);
            layer.query_bytes     = 4.0*l.n_head*n_stream*l.d_k;
            layer.partial_bytes   = 4.0*l.n_head*(l.d_v + 2);
            layer.tile_bytes      = double(tile*tail_row(l).all());
            step.layers.push_back(layer);
        }
        return step;
    }

    void time() {
        const uint64_t        depth = std::min(ask.depth, ask.n_ctx);
        const rkv::step_model step  = step_of(depth);
        for (const auto & layer : step.layers) {
            res.step_tail_bytes += uint64_t(layer.tail_bytes);
        }
        rkv::step_model resident = step;
        for (size_t il = 0; il < resident.layers.size(); ++il) {
            auto & layer = resident.layers[il];
            layer.window_s   = attention_s(double(depth*n_stream*window_row(model.layers[il]).all()));
            layer.tail_bytes = 0;
        }
        res.compute_s = rkv::step_s(resident, 0);
        res.prompt_s  = prompt_s(depth);

        const bool host_known = std::all_of(step.layers.begin(), step.layers.end(), [](const rkv::step_layer & l) { return l.host_s_byte > 0; });
        const double share = host_known ? rkv::best_share(step) : 0;
        res.engines[0] = { true, rkv::step_s(step, 0), 0 };
        res.engines[1] = { host_known, host_known ? rkv::step_s(step, 1) : 0, 1 };
        res.engines[2] = { host_known, host_known ? rkv::step_s(step, share) : 0, share };
        if (res.step_tail_bytes == 0) {
            return;
        }
        for (int e = 1; e < RKV_PLAN_N_ENGINE; ++e) {
            if (res.engines[e].possible && res.engines[e].step_s*(1 + RKV_PLAN_MARGIN) < res.engines[res.best - 1].step_s) {
                res.best = rkv_plan_engine_id(e + 1);
            }
        }
    }

    // Seconds of a token of a prompt, on average over batches that end at `depth`. Prompts take the ring whatever the engine: each batch
    // brings the tail once, while it computes.
    double prompt_s(uint64_t depth) const {
        constexpr int POINTS = 32;
        const double  batch  = std::min<double>(std::max(1u, ask.n_ubatch), std::max<uint64_t>(depth, 1));
        double        sum    = 0;
        for (int i = 0; i < POINTS; ++i) {
            const double at      = double(depth)*(i + 0.5)/POINTS;
            const double in_tail = std::max(0.0, at - double(res.window_cells));
            double ops = model.token_flops*batch;
            double bytes = double(model.step_weight_bytes);
            double moved = 0;
            for (uint32_t il = 0; il < model.n_layer; ++il) {
                const rkv_plan_layer & l = model.layers[il];
                ops   += 2.0*l.n_head*(l.d_k + l.d_v)*at*batch;
                bytes += (at - in_tail)*double(window_row(l).all()) + in_tail*double(tail_row(l).all());
                moved += in_tail*double(tail_row(l).all());
            }
            const double computed = std::max(rates.device_flops > 0 ? ops/rates.device_flops : 0, device_s(bytes)) + rates.device_launch_s*model.n_node;
            const double copied   = rates.to_device_pinned > 0 ? moved/rates.to_device_pinned : 0;
            sum += std::max(computed, copied)/batch;
        }
        return sum/POINTS;
    }
};

} // namespace

struct rkv_plan_result rkv_plan_make(const struct rkv_rates * rates, const struct rkv_plan_model * model, const struct rkv_plan_ask * ask) {
    return planning(*rates, *model, *ask).make();
}

struct rkv_engine_choice rkv_planner_engine(const struct rkv_engine_rates * rates, uint64_t tail_bytes, uint32_t n_node, double compute_s) {
    const double copied = rates->link_bytes_s > 0 ? double(tail_bytes)/rates->link_bytes_s : 0;
    const rkv_engine_choice stream = { RKV_PLAN_STREAM, 0, std::max(compute_s, copied) };
    if (tail_bytes == 0 || rates->host_bytes_s <= 0) {
        return stream;
    }
    // The host waits for the queries and the device for the partials, in each node.
    const double begun = compute_s + 2*n_node*rates->link_latency_s;
    const double read  = double(tail_bytes)/rates->host_bytes_s;
    const double share = rkv::best_host_share(double(tail_bytes), begun, rates->link_bytes_s, rates->host_bytes_s);

    const rkv_engine_choice host   = { RKV_PLAN_HOST, 1, begun + read };
    const rkv_engine_choice hybrid = { RKV_PLAN_HYBRID, share, share > 0 ? begun + share*read : stream.step_s };
    rkv_engine_choice best = stream;
    for (const auto & other : { host, hybrid }) {
        if (other.step_s*(1 + RKV_PLAN_MARGIN) < best.step_s) {
            best = other;
        }
    }
    return best;
}
