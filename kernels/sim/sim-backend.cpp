#include "sim-backend.h"

#include "sim-device.h"
#include "sim-graph.h"
#include "sim-queue.h"
#include "sim-staging.h"

#include "ggml-impl.h"

#include <cstring>
#include <exception>

namespace rkv_sim {

namespace {

typedef void (*set_n_threads_t)(ggml_backend_t, int);

// A stream of a device: one in-order compute queue, and the tiles that are brought for it.
struct backend {
    backend(device & d, uint32_t number, ggml_backend_dev_t cpu)
        : d(d), cpu(ggml_backend_dev_init(cpu, nullptr)), compute(d.cfg.seed + 16*number, d.cfg.delay_s),
          tiles(d, d.cfg.seed + 16*number, [this] { compute.drain(); }) {
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu);
        set_n_threads = (set_n_threads_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    }

    ~backend() {
        compute.drain();
        ggml_backend_free(cpu);
    }

    device &         d;
    ggml_backend_t   cpu;
    set_n_threads_t  set_n_threads;
    int              n_threads = 1;
    queue            compute;
    staging          tiles;
    ggml_backend     base{};
};

backend & of(ggml_backend_t b) {
    return *(backend *) b->context;
}

const char * get_name(ggml_backend_t b) {
    return of(b).d.name.c_str();
}

void free_backend(ggml_backend_t b) {
    delete &of(b);
}

void set_tensor_async(ggml_backend_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    device & d   = of(b).d;
    char *   dst = (char *) bytes_of(d, t) + offset;
    of(b).compute.push([&d, dst, data, size] { d.to_device.transfer(size, [&] { memcpy(dst, data, size); }); });
}

void get_tensor_async(ggml_backend_t b, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    device &     d   = of(b).d;
    const char * src = (const char *) bytes_of(d, t) + offset;
    of(b).compute.push([&d, src, data, size] { d.to_host.transfer(size, [&] { memcpy(data, src, size); }); });
}

void synchronize(ggml_backend_t b) {
    of(b).compute.drain();
}

ggml_status graph_compute(ggml_backend_t b, ggml_cgraph * graph) {
    backend & s = of(b);
    try {
        auto copy = std::make_shared<graph_copy>(s.d, graph);
        auto step = s.tiles.begin(*copy);
        const int n_threads = s.d.cfg.n_threads ? int(s.d.cfg.n_threads) : s.n_threads;
        s.compute.push([&s, copy, step, n_threads] {
            if (step) {
                s.tiles.start(*step);
            }
            if (s.set_n_threads) {
                s.set_n_threads(s.cpu, n_threads);
            }
            const ggml_status status = ggml_backend_graph_compute(s.cpu, copy->graph());
            if (status != GGML_STATUS_SUCCESS) {
                GGML_LOG_ERROR("%s: computing a graph failed: %s\n", s.d.name.c_str(), ggml_status_to_string(status));
            }
        });
        if (copy->rewrites_tail()) {
            // Rare: the tiles of the next step must neither be kept nor be copied before it has run.
            s.compute.drain();
            s.d.tail_writes++;
        }
    } catch (const std::bad_alloc &) {
        GGML_LOG_ERROR("%s: no memory for the slots of the staging ring; make the window smaller\n", s.d.name.c_str());
        return GGML_STATUS_ALLOC_FAILED;
    }
    return GGML_STATUS_SUCCESS;
}

// An event holds the timeline's value that was asked for last.
struct event {
    timeline              reached;
    std::atomic<uint64_t> asked{ 0 };
};

void event_record(ggml_backend_t b, ggml_backend_event_t e) {
    event * ev = (event *) e->context;
    const uint64_t value = ++ev->asked;
    of(b).compute.push([ev, value] { ev->reached.signal(value); });
}

void event_wait(ggml_backend_t b, ggml_backend_event_t e) {
    event * ev = (event *) e->context;
    const uint64_t value = ev->asked;
    of(b).compute.push([ev, value] { ev->reached.wait(value); });
}

ggml_guid GUID = { 0x72, 0x6b, 0x76, 0x2d, 0x73, 0x69, 0x6d, 0x2d, 0x64, 0x65, 0x76, 0x69, 0x63, 0x65, 0x2d, 0x31 };

const ggml_backend_i BACKEND = {
    /* .get_name            = */ get_name,
    /* .free                = */ free_backend,
    /* .set_tensor_async    = */ set_tensor_async,
    /* .get_tensor_async    = */ get_tensor_async,
    /* .set_tensor_2d_async = */ nullptr,
    /* .get_tensor_2d_async = */ nullptr,
    /* .cpy_tensor_async    = */ nullptr,
    /* .synchronize         = */ synchronize,
    /* .graph_plan_create   = */ nullptr,
    /* .graph_plan_free     = */ nullptr,
    /* .graph_plan_update   = */ nullptr,
    /* .graph_plan_compute  = */ nullptr,
    /* .graph_compute       = */ graph_compute,
    /* .event_record        = */ event_record,
    /* .event_wait          = */ event_wait,
    /* .graph_optimize      = */ nullptr,
};

} // namespace

ggml_backend_t init_backend(device & d) {
    ggml_backend_dev_t cpu = cpu_device();
    if (!cpu) {
        GGML_LOG_ERROR("%s: there is no CPU backend to compute with\n", d.name.c_str());
        return nullptr;
    }
    backend * s = new backend(d, ++d.n_backend, cpu);
    s->base = { &GUID, BACKEND, &d.dev, s };
    return &s->base;
}

void * event_new() {
    return new event();
}

void event_free(void * e) {
    delete (event *) e;
}

void event_synchronize(void * e) {
    event * ev = (event *) e;
    ev->reached.wait(ev->asked);
}

// What the registry offers by name.

void backend_set_n_threads(ggml_backend_t b, int n_threads) {
    of(b).n_threads = n_threads;
}

void backend_staging_set(ggml_backend_t b, const rkv_staging_params * params) {
    of(b).tiles.configure(*params);
}

void backend_staging_totals(ggml_backend_t b, rkv_staging_totals * totals) {
    of(b).compute.drain();
    *totals = of(b).tiles.totals();
}

} // namespace rkv_sim
