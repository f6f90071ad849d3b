#include "rkv-probe.h"

#include "rkv-shim-guard.h"
#include "rkv-step.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

namespace rkv {

typedef void (*totals_t)(ggml_backend_t, rkv_staging_totals *);

template <typename F> static F proc_of(ggml_backend_t backend, const char * name) {
    return (F) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(ggml_backend_get_device(backend)), name);
}

timed_backend::timed_backend(ggml_backend_dev_t dev, int n_threads) : backend(ggml_backend_dev_init(dev, nullptr)) {
    if (!backend) {
        throw std::runtime_error(std::string("device ") + ggml_backend_dev_name(dev) + " cannot be started");
    }
    if (const auto set = proc_of<ggml_backend_set_n_threads_t>(backend.get(), "ggml_backend_set_n_threads")) {
        set(backend.get(), n_threads);
    }
    // A device that reckons its time lets it pass with each node.
    const uint64_t before = own_ns();
    make_read(*this, 1 << 20)->run();
    make_nodes(*this, 64)->run();
    settle();
    own_time = own_ns() > before;
}

uint64_t timed_backend::own_ns() const {
    const auto get = proc_of<totals_t>(backend.get(), RKV_STAGING_TOTALS_PROC);
    if (!get) {
        return 0;
    }
    rkv_staging_totals totals = {};
    get(backend.get(), &totals);
    return totals.device_ns;
}

double timed_backend::now_s() const {
    return own_time ? 1e-9*double(own_ns()) : 1e-6*double(ggml_time_us());
}

} // namespace rkv

struct rkv_probe {
    rkv_probe(ggml_backend_dev_t dev, int n_threads) : n_threads(std::max(1, n_threads)) {
        ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        if (!cpu) {
            throw std::runtime_error("there is no CPU backend");
        }
        host = std::make_unique<rkv::timed_backend>(cpu, this->n_threads);
        if (dev) {
            device = std::make_unique<rkv::timed_backend>(dev, this->n_threads);
        }
    }

    rkv_probe_run run(rkv_probe_kind kind, uint64_t size, ggml_type type) {
        const bool of_host = kind >= RKV_PROBE_HOST_READ;
        if (!of_host && !device) {
            throw std::runtime_error("there is no device to measure");
        }
        rkv::timed_backend & on  = of_host ? *host : *device;
        const key            now = { kind, size, type };
        if (!kept || what != now) {
            kept.reset(); // its memory first
            kept = make(on, kind, size, type);
            what = now;
            kept->run(); // the first run also makes what later ones find
            on.settle();
        }
        const double from = on.now_s();
        kept->run();
        on.settle();
        return { on.now_s() - from, kept->amount, on.reckons() };
    }

private:
    using key = std::tuple<rkv_probe_kind, uint64_t, ggml_type>;

    const int                           n_threads;
    std::unique_ptr<rkv::timed_backend> host;
    std::unique_ptr<rkv::timed_backend> device;
    key                                 what{};
    std::unique_ptr<rkv::trial>         kept;

    std::unique_ptr<rkv::trial> make(rkv::timed_backend & on, rkv_probe_kind kind, uint64_t size, ggml_type type) const {
        switch (kind) {
            case RKV_PROBE_TO_DEVICE_PINNED:   return rkv::make_copy(on, size, true, true);
            case RKV_PROBE_TO_DEVICE_PAGEABLE: return rkv::make_copy(on, size, true, false);
            case RKV_PROBE_TO_HOST_PINNED:     return rkv::make_copy(on, size, false, true);
            case RKV_PROBE_TO_HOST_PAGEABLE:   return rkv::make_copy(on, size, false, false);
            case RKV_PROBE_DEVICE_NODES:       return rkv::make_nodes(on, size);
            case RKV_PROBE_DEVICE_READ:        return rkv::make_read(on, size);
            case RKV_PROBE_DEVICE_MATRIX:      return rkv::make_matrix(on, size);
            case RKV_PROBE_DEVICE_ATTENTION:   return rkv::make_attention(on, size, GGML_TYPE_F16);
            case RKV_PROBE_HOST_READ:          return rkv::make_host_read(size, n_threads);
            case RKV_PROBE_HOST_KERNEL:        return rkv::make_attention(on, size, type);
        }
        throw std::runtime_error("there is no such probe");
    }
};

enum rkv_status rkv_probe_new(ggml_backend_dev_t dev, int32_t n_threads, rkv_probe ** out) {
    return rkv::guarded([&] {
        *out = new rkv_probe(dev, n_threads);
        return RKV_OK;
    });
}

void rkv_probe_free(rkv_probe * probe) {
    delete probe;
}

enum rkv_status rkv_probe_run_once(rkv_probe * probe, rkv_probe_kind kind, uint64_t size, ggml_type type, rkv_probe_run * out) {
    return rkv::guarded(rkv::work::computes, [&] {
        *out = probe->run(kind, size, type);
        return RKV_OK;
    });
}
