// The registry of the simulated devices, and the devices as ggml sees them.

#include "sim-backend.h"
#include "sim-device.h"
#include "sim-reg.h"

#include "rkv-host-api.h"

#include "ggml-impl.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace rkv_sim {

namespace {

const char * SPEC_VARIABLE = "ROLLING_KV_SIM";

struct registry {
    std::string                          spec;
    bool                                 asked = false;
    std::vector<std::unique_ptr<device>> devices;
    ggml_backend_reg                     reg{};
};

registry & the() {
    static registry r;
    return r;
}

//
// devices
//

const char * dev_name(ggml_backend_dev_t dev) {
    return device_of(dev)->name.c_str();
}

const char * dev_description(ggml_backend_dev_t dev) {
    return device_of(dev)->text.c_str();
}

void dev_memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    *total = device_of(dev)->mem.total();
    *free  = *total - device_of(dev)->mem.used();
}

enum ggml_backend_dev_type dev_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void dev_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    *props = {};
    props->name        = dev_name(dev);
    props->description = dev_description(dev);
    props->type        = dev_type(dev);
    dev_memory(dev, &props->memory_free, &props->memory_total);
    props->caps.async       = true;
    props->caps.host_buffer = true;
    props->caps.events      = true;
}

ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *) {
    return init_backend(*device_of(dev));
}

ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft_device;
}

ggml_backend_buffer_type_t dev_host_buffer_type(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft_host;
}

ggml_backend_buffer_type_t dev_tail_buffer_type(ggml_backend_dev_t dev) {
    return &device_of(dev)->buft_tail;
}

bool dev_supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    ggml_backend_dev_t cpu = cpu_device();
    return cpu && ggml_backend_dev_supports_op(cpu, op);
}

bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    device * d = device_of(dev);
    return buft == &d->buft_device || buft == &d->buft_tail;
}

// Large batches are worth sending weights for.
bool dev_offload_op(ggml_backend_dev_t, const ggml_tensor * op) {
    constexpr int64_t BATCH_MIN = 32;
    switch (op->op) {
        case GGML_OP_MUL_MAT:    return op->ne[1] >= BATCH_MIN;
        case GGML_OP_MUL_MAT_ID: return op->ne[2] >= BATCH_MIN;
        default:                 return false;
    }
}

ggml_backend_event_t dev_event_new(ggml_backend_dev_t dev) {
    return new ggml_backend_event{ dev, event_new() };
}

void dev_event_free(ggml_backend_dev_t, ggml_backend_event_t e) {
    event_free(e->context);
    delete e;
}

void dev_event_synchronize(ggml_backend_dev_t, ggml_backend_event_t e) {
    event_synchronize(e->context);
}

const ggml_backend_device_i DEVICE = {
    /* .get_name             = */ dev_name,
    /* .get_description      = */ dev_description,
    /* .get_memory           = */ dev_memory,
    /* .get_type             = */ dev_type,
    /* .get_props            = */ dev_props,
    /* .init_backend         = */ dev_init,
    /* .get_buffer_type      = */ dev_buffer_type,
    /* .get_host_buffer_type = */ dev_host_buffer_type,
    /* .buffer_from_host_ptr = */ nullptr,
    /* .supports_op          = */ dev_supports_op,
    /* .supports_buft        = */ dev_supports_buft,
    /* .offload_op           = */ dev_offload_op,
    /* .event_new            = */ dev_event_new,
    /* .event_free           = */ dev_event_free,
    /* .event_synchronize    = */ dev_event_synchronize,
};

//
// registry
//

const char * reg_name(ggml_backend_reg_t) {
    return "SIM";
}

size_t reg_device_count(ggml_backend_reg_t) {
    return the().devices.size();
}

ggml_backend_dev_t reg_device(ggml_backend_reg_t, size_t index) {
    return &the().devices.at(index)->dev;
}

void dev_link_totals(ggml_backend_dev_t dev, rkv_link_totals * totals) {
    const link_totals & to_device = device_of(dev)->to_device.totals();
    const link_totals & to_host   = device_of(dev)->to_host.totals();
    *totals = { to_device.bytes, to_host.bytes, to_device.transfers, to_host.transfers, to_device.busy_ns };
}

void * reg_proc(ggml_backend_reg_t, const char * name) {
    struct entry {
        const char * name;
        void *       fn;
    };
    static int tiled;
    const entry entries[] = {
        { "ggml_backend_set_n_threads", (void *) backend_set_n_threads },
        { "rkv_tiled",                  (void *) &tiled },
        { RKV_TAIL_TYPES_PROC,          (void *) &tiled },
        { RKV_HOST_BITS_PROC,           (void *) &tiled },
        { RKV_TAIL_BUFT_PROC,           (void *) dev_tail_buffer_type },
        { RKV_STAGING_SET_PROC,         (void *) backend_staging_set },
        { RKV_STAGING_TOTALS_PROC,      (void *) backend_staging_totals },
        { RKV_LINK_TOTALS_PROC,         (void *) dev_link_totals },
    };
    for (const entry & e : entries) {
        if (strcmp(e.name, name) == 0) {
            return e.fn;
        }
    }
    return nullptr;
}

const ggml_backend_reg_i REGISTRY = { reg_name, reg_device_count, reg_device, reg_proc };

void make_devices(registry & r) {
    const config cfg = parse_config(r.spec);
    for (uint32_t i = 0; i < cfg.n_device; ++i) {
        r.devices.push_back(std::make_unique<device>(cfg, i, &r.reg));
    }
}

ggml_backend_reg_t get_reg() {
    registry & r = the();
    static std::once_flag once;
    std::call_once(once, [&] {
        r.reg = { GGML_BACKEND_API_VERSION, REGISTRY, nullptr };
        const char * spec = getenv(SPEC_VARIABLE);
        if (!r.asked && spec) {
            r.spec  = spec;
            r.asked = true;
        }
        if (!r.asked) {
            return;
        }
        try {
            make_devices(r);
        } catch (const std::exception & e) {
            GGML_LOG_ERROR("%s\n", e.what());
        }
    });
    return &r.reg;
}

int get_score() {
    return the().asked || getenv(SPEC_VARIABLE) ? 1 : 0;
}

} // namespace

device::device(const config & cfg, uint32_t index, ggml_backend_reg_t reg)
    : cfg(cfg), name("SIM" + std::to_string(index)), text(describe(cfg)), cost(cfg.launch_s, cfg.mem_bytes_s), mem(cfg), to_device(cfg.link_bytes_s, cfg.latency_s, cfg.by_clock),
      to_host(cfg.link_bytes_s, cfg.latency_s, cfg.by_clock) {
    dev = { DEVICE, reg, this };
    init_buffer_types(*this);
}

rkv::link_speed device::measured_link() {
    std::call_once(measure_once, [this] {
        if (cfg.by_clock) {
            measured = { cfg.link_bytes_s, cfg.latency_s };
            return;
        }
        const auto took = [this](size_t bytes) {
            double best = 1e9;
            for (int i = 0; i < 3; ++i) {
                const auto from = std::chrono::steady_clock::now();
                to_device.transfer(bytes, [] {});
                best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
            }
            return best;
        };
        constexpr size_t SMALL = 4096;
        constexpr size_t MOST  = 64 << 20;
        const double small = took(SMALL);
        size_t       bytes = 256 << 10;
        double       large = took(bytes);
        while (large < 1e-3 && bytes < MOST) {
            bytes *= 2;
            large = took(bytes);
        }
        // A thread that was woken late during the small ones must not make the link seem endless.
        measured.bytes_s   = double(bytes - SMALL)/(large - std::min(small, large/2));
        measured.latency_s = std::max(small - SMALL/measured.bytes_s, 0.0);
    });
    return measured;
}

ggml_backend_dev_t cpu_device() {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

} // namespace rkv_sim

bool rkv_sim_configure(const char * spec, char * why, size_t n_why) {
    auto & r = rkv_sim::the();
    try {
        rkv_sim::parse_config(spec);
    } catch (const std::exception & e) {
        snprintf(why, n_why, "%s", e.what());
        return false;
    }
    if (r.asked) {
        snprintf(why, n_why, "sim device: it was already made, with '%s'; there is one specification a process", r.spec.c_str());
        return r.spec == spec;
    }
    r.spec  = spec;
    r.asked = true;
    return true;
}

GGML_BACKEND_DL_IMPL(rkv_sim::get_reg)
GGML_BACKEND_DL_SCORE_IMPL(rkv_sim::get_score)
