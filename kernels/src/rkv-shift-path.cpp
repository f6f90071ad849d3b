#include "rkv-shift-path.h"

#include "rkv-residency-api.h"
#include "rkv-rope-node.h"

#include "llama-context.h"
#include "llama-impl.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace {

// A turn of some rows on a CPU backend of its own.
class trial {
public:
    static constexpr int64_t HEAD = 64;
    static constexpr int64_t N_HEAD = 8;
    static constexpr int64_t ROWS = 1024;

    trial(ggml_type type, int n_threads) : backend(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr)) {
        if (!backend) {
            return;
        }
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend.get()));
        if (auto set = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads")) {
            set(backend.get(), n_threads);
        }
        ggml_init_params params = {};
        params.mem_size = 16*ggml_tensor_overhead() + ggml_graph_overhead();
        params.no_alloc = true;
        ctx.reset(ggml_init(params));
        gf = ggml_new_graph(ctx.get());
        build(type);
        buffer.reset(ggml_backend_alloc_ctx_tensors(ctx.get(), backend.get()));
        if (buffer) {
            ggml_backend_buffer_clear(buffer.get(), 0);
            std::vector<int32_t> values(ROWS);
            for (int64_t i = 0; i < ROWS; ++i) {
                values[i] = int32_t(i);
            }
            ggml_backend_tensor_set(rows, values.data(), 0, ggml_nbytes(rows));
            std::fill(values.begin(), values.end(), -256);
            ggml_backend_tensor_set(moves, values.data(), 0, ggml_nbytes(moves));
        }
    }

    // Bytes of K per second; the best of a few.
    double rate() {
        if (!buffer) {
            return 0.0;
        }
        int64_t best = INT64_MAX;
        for (int i = 0; i < 4; ++i) {
            const int64_t from = ggml_time_us();
            if (ggml_backend_graph_compute(backend.get(), gf) != GGML_STATUS_SUCCESS) {
                return 0.0;
            }
            best = std::min(best, ggml_time_us() - from);
        }
        return double(ggml_nbytes(k))/(1e-6*std::max<int64_t>(best, 1));
    }

private:
    ggml_backend_ptr        backend;
    ggml_context_ptr        ctx;
    ggml_backend_buffer_ptr buffer;
    ggml_cgraph *           gf    = nullptr;
    ggml_tensor *           k     = nullptr;
    ggml_tensor *           rows  = nullptr;
    ggml_tensor *           moves = nullptr;

    void build(ggml_type type) {
        ggml_context * c = ctx.get();
        k     = ggml_new_tensor_2d(c, type, HEAD*N_HEAD, ROWS);
        rows  = ggml_new_tensor_1d(c, GGML_TYPE_I32, ROWS);
        moves = ggml_new_tensor_1d(c, GGML_TYPE_I32, ROWS);
        const bool in_place = type == GGML_TYPE_F16;
        ggml_tensor * t = ggml_reshape_3d(c, in_place ? k : ggml_get_rows(c, k, rows), HEAD, N_HEAD, ROWS);
        t = ggml_rope_ext_inplace(c, t, moves, nullptr, HEAD, GGML_ROPE_TYPE_NEOX, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        t->op_params[RKV_ROPE_PARAM_MARK] = RKV_ROPE_MARK;
        if (!in_place) {
            t = ggml_set_rows(c, k, ggml_reshape_2d(c, t, HEAD*N_HEAD, ROWS), rows);
        }
        ggml_build_forward_expand(gf, t);
    }
};

} // namespace

double rkv_host_turn_rate(ggml_type type, int n_threads) {
    static std::mutex mutex;
    static std::map<std::pair<int, int>, double> known;
    std::lock_guard<std::mutex> lock(mutex);
    const auto [it, is_new] = known.emplace(std::make_pair(int(type), n_threads), 0.0);
    if (is_new) {
        it->second = trial(type, n_threads).rate();
    }
    return it->second;
}

rkv_shift_path rkv_shift_path_choose(llama_context * lctx, const rkv_shift_work & work) {
    const rkv_shift_path asked = lctx->get_cparams().rkv.shift_path;
    if (work.bytes == 0) {
        return RKV_SHIFT_PATH_HOST;
    }
    if (asked != RKV_SHIFT_PATH_AUTO) {
        return asked;
    }
    rkv_staging_totals link;
    if (!rkv_staging_totals_get(lctx, &link) || link.link_bytes_s <= 0.0) {
        return RKV_SHIFT_PATH_HOST;
    }
    const int    n_threads = int(lctx->n_threads_batch());
    const double host      = rkv_host_turn_rate(work.type, n_threads);
    const double on_host   = host > 0.0 ? double(work.bytes)/host : 1e9;
    const double on_device = 2.0*double(work.bytes)/link.link_bytes_s + 2.0*double(work.nodes)*link.link_latency_s;
    LLAMA_LOG_DEBUG("rolling-kv: turning %.2f MiB of the tail: %.2f ms on the host with %d threads, %.2f ms over the link, as reckoned\n",
            work.bytes/1048576.0, 1e3*on_host, n_threads, 1e3*on_device);
    return on_host <= on_device ? RKV_SHIFT_PATH_HOST : RKV_SHIFT_PATH_DEVICE;
}
