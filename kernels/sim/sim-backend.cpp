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
        : d(d), cpu(ggml_backend_dev_init(cpu, nullptr)), compute("rkv-sim-compute", false, d.cfg.seed + 16*number, d.cfg.delay_s),
          tiles(d, clock, d.cfg.seed + 16*number, [this] { compute.drain(); }) {
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
    device_clock     clock;
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

// A transfer in the order of the compute queue.
void transfer(backend & s, link & l, size_t size, const std::function<void()> & move) {
    if (s.d.cfg.by_clock) {
        s.clock.pass(seconds(s.d.cfg.latency_s + double(size)/s.d.cfg.link_bytes_s));
    }
    l.transfer(size, move);
}

void set_tensor_async(ggml_backend_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    backend & s   = of(b);
    char *    dst = (char *) bytes_of(s.d, t) + offset;
    s.compute.push([&s, dst, data, size] { transfer(s, s.d.to_device, size, [&] { memcpy(dst, data, size); }); });
}

void get_tensor_async(ggml_backend_t b, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    backend &    s   = of(b);
    const char * src = (const char *) bytes_of(s.d, t) + offset;
    s.compute.push([&s, src, data, size] { transfer(s, s.d.to_host, size, [&] { memcpy(data, src, size); }); });
}

void synchronize(ggml_backend_t b) {
    of(b).compute.drain();
}

// The nodes [i0, i1) of a graph, which need not be one graph to the CPU backend.
ggml_status compute_part(backend & s, ggml_cgraph * graph, int i0, int i1) {
    if (i0 == i1) {
        return GGML_STATUS_SUCCESS;
    }
    ggml_cgraph part = ggml_graph_view(graph, i0, i1);
    return ggml_backend_graph_compute(s.cpu, &part);
}

// The whole graph. Where the device's time is reckoned, it passes node by node; a node with a feed accounts for itself while it runs.
ggml_status compute(backend & s, ggml_cgraph * graph) {
    if (!s.d.cfg.by_clock) {
        return ggml_backend_graph_compute(s.cpu, graph);
    }
    ggml_status status = GGML_STATUS_SUCCESS;
    int         from   = 0;
    for (int i = 0; i < graph->n_nodes && status == GGML_STATUS_SUCCESS; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (!has_feed(node)) {
            s.clock.pass(s.d.cost.of_node(node, 0));
            continue;
        }
        status = compute_part(s, graph, from, i);
        if (status == GGML_STATUS_SUCCESS) {
            status = compute_part(s, graph, i, i + 1);
        }
        from = i + 1;
    }
    return status == GGML_STATUS_SUCCESS ? compute_part(s, graph, from, graph->n_nodes) : status;
}

ggml_status graph_compute(ggml_backend_t b, ggml_cgraph * graph) {
    backend & s = of(b);
    try {
        auto copy = std::make_shared<graph_copy>(s.d, graph);
        const int n_threads = s.d.cfg.n_threads ? int(s.d.cfg.n_threads) : s.n_threads;
        auto step = s.tiles.begin(*copy, n_threads);
        s.compute.push([&s, copy, step, n_threads] {
            if (step) {
                s.tiles.start(*step);
            }
            if (s.set_n_threads) {
                s.set_n_threads(s.cpu, n_threads);
            }
            const ggml_status status = compute(s, copy->graph());
            if (const uint64_t turned = copy->turned_in_tail()) {
                transfer(s, s.d.to_device, turned, [] {});
                transfer(s, s.d.to_host, turned, [] {});
            }
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

bool backend_staging_set(ggml_backend_t b, const rkv_staging_params * params, const rkv_staging_need * need) {
    of(b).compute.drain();
    return of(b).tiles.prepare(*params, *need);
}

void backend_staging_totals(ggml_backend_t b, rkv_staging_totals * totals) {
    of(b).compute.drain();
    *totals = of(b).tiles.totals();
    totals->idle_ns = of(b).compute.idle_ns();
}

} // namespace rkv_sim
