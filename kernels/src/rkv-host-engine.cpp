// Attention over the tail where it lies. A part of a tile is computed by the same function as on the CPU backend, from the same rows,
// so its bits do not depend on who computes it.

#include "rkv-host-engine.h"

#include "rkv-numa.h"
#include "rkv-simd.h"
#include "rkv-thread.h"

#include <algorithm>
#include <new>

using namespace rkv;

// Units of a job a thread, so that the last one is not waited for long; and how many are taken at once.
static constexpr int    UNITS_PER_THREAD = 4;
static constexpr size_t RUN_UNITS        = 8;

//
// a job
//

static size_t partial_floats(const ggml_tensor * node) {
    const attn_args a = attn_args_read(node);
    return (size_t) a.n_head*a.n_q*(round_up_lanes(a.d_v) + 2);
}

rkv_host_job::rkv_host_job(rkv_host_engine & engine, const ggml_tensor * node, const rkv_host_tile * list, size_t n, float * partials)
    : engine(engine), a(attn_args_read(node)), tiles(list, list + n), parts(row_parts::of_cache(a)) {
    a.feed   = nullptr;
    a.fault  = rkv_fault_get();
    n_rows   = a.n_head*a.n_q;
    ld_o     = round_up_lanes(a.d_v);
    rows_max = parts.rows_max();
    if (!partials) {
        own.reset(new float[n*partial_floats(node)]);
        partials = own.get();
    }
    sums = partials;
    o    = partials + n*n_rows*2;
    std::fill(sums, o, 0.0f); // of a tile that no query sees
    missing.reset(new std::atomic<int>[n]);
}

narrow_tile rkv_host_job::unit(size_t u) const {
    const rkv_host_tile & at   = tiles[u / parts.n];
    const int             part = (int) (u % parts.n);

    narrow_tile t = {};
    t.stream = at.stream;
    t.tile   = at.tile;
    t.row0   = parts.begin(part);
    t.row1   = parts.begin(part + 1);
    t.rows   = a.rows(at.stream, at.tile);
    t.mask   = mask_of_tile(a, at.stream, at.tile);
    return t;
}

namespace {

// The units of a run, for reading ahead.
struct ahead_run {
    const rkv_host_job & job;
    size_t               u, end;

    static bool next(void * source, ahead_tile & tile) {
        ahead_run & self = *(ahead_run *) source;
        if (self.u == self.end) {
            return false;
        }
        const narrow_tile t = self.job.unit(self.u++);
        tile = { t.rows, head_begin(self.job.a, t), head_end(self.job.a, t) };
        return true;
    }
};

} // namespace

static narrow_scratch scratch_of(const rkv_host_job & job, std::vector<char> & memory) {
    arena count(nullptr);
    narrow_scratch::carve(count, job.a, job.rows_max);
    if (memory.size() < count.bytes()) {
        memory.resize(count.bytes());
    }
    arena          mem(memory.data());
    narrow_scratch s = narrow_scratch::carve(mem, job.a, job.rows_max);
    for (int h = 0; h < job.a.n_head; ++h) {
        s.slopes[h] = job.a.slope(h);
    }
    return s;
}

//
// the threads
//

rkv_host_engine::rkv_host_engine(int n_threads) : nodes(numa_nodes()), allowed(numa_allowed()) {
    for (int i = 0; i < std::max(n_threads, 1); ++i) {
        threads.emplace_back([this] { run(); });
    }
}

rkv_host_engine::~rkv_host_engine() {
    {
        std::lock_guard<std::mutex> lock(mutex);
        ends = true;
    }
    work.notify_all();
    for (std::thread & t : threads) {
        t.join();
    }
}

// The node of memory that the job's first, middle and last tile lie in, or -1 when they differ.
int rkv_host_engine::node_of(const rkv_host_job & job) const {
    int node = -1;
    for (size_t i : { size_t(0), job.tiles.size()/2, job.tiles.size() - 1 }) {
        const int at = nodes.empty() || job.tiles.empty() ? -1 : numa_node_of(job.a.rows(job.tiles[i].stream, job.tiles[i].tile).k);
        if (at < 0 || size_t(at) >= nodes.size() || (i > 0 && at != node)) {
            return -1;
        }
        node = at;
    }
    return node;
}

void rkv_host_engine::start(rkv_host_job & job) {
    job.parts.at_least((threads.size()*UNITS_PER_THREAD + job.tiles.size() - 1)/std::max<size_t>(job.tiles.size(), 1));
    for (size_t i = 0; i < job.tiles.size(); ++i) {
        job.missing[i] = job.parts.n;
    }
    job.left  = job.n_unit();
    job.node  = node_of(job);
    job.began = std::chrono::steady_clock::now();
    {
        std::lock_guard<std::mutex> lock(mutex);
        job.started = true;
        if (job.n_unit() > 0) {
            jobs.push_back(&job);
        }
    }
    work.notify_all();
}

void rkv_host_engine::run() {
    name_thread("rkv-host");
    std::vector<char> memory;
    int               near = -1; // node of memory that this thread stays at

    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        work.wait(lock, [&] { return ends || !jobs.empty(); });
        if (jobs.empty()) {
            return;
        }
        rkv_host_job & job = *jobs.front();
        if (job.next >= job.n_unit()) {
            jobs.pop_front();
            continue;
        }
        job.inside++;
        lock.unlock();
        if (job.node != near) {
            near = job.node;
            if (near < 0 || !numa_stay(nodes[near], allowed, threads.size())) {
                numa_stay(allowed, allowed, 1); // anywhere
            }
        }
        work_on(job, memory);
        lock.lock();
        if (!jobs.empty() && jobs.front() == &job) {
            jobs.pop_front();
        }
        job.inside--;
        done.notify_all();
    }
}

// Until no unit of it is left to take.
void rkv_host_engine::work_on(rkv_host_job & job, std::vector<char> & memory) {
    narrow_scratch s = scratch_of(job, memory);
    const size_t   n   = job.n_unit();
    const size_t   run = std::clamp<size_t>(n/(threads.size()*UNITS_PER_THREAD), 1, RUN_UNITS);
    for (size_t from = job.next.fetch_add(run); from < n; from = job.next.fetch_add(run)) {
        const size_t to    = std::min(from + run, n);
        ahead_run    units = { job, from, to };
        read_ahead   ahead(job.a, ahead_run::next, &units);
        for (size_t u = from; u < to; ++u) {
            const narrow_tile t  = job.unit(u);
            const size_t      at = u / job.parts.n;
            const size_t      r0 = at*job.n_rows + t.row0;
            if (t.mask.begin < t.mask.end) {
                narrow_partial(job.a, t, s, ahead, &job.sums[r0*2], &job.o[r0*job.ld_o], job.ld_o);
            }
            job.took_ns = (uint64_t) std::chrono::nanoseconds(std::chrono::steady_clock::now() - job.began).count();
            if (job.missing[at].fetch_sub(1, std::memory_order_acq_rel) == 1) {
                tell();
            }
            --job.left;
        }
    }
}

void rkv_host_engine::tell() {
    std::lock_guard<std::mutex> lock(mutex);
    if (waiting > 0) {
        done.notify_all();
    }
}

void rkv_host_engine::wait_for(rkv_host_job & job, size_t tile) {
    if (job.started && job.is_done(tile)) {
        return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    ++waiting;
    done.wait(lock, [&] { return job.started && job.is_done(tile); });
    --waiting;
}

void rkv_host_engine::finish(rkv_host_job & job) {
    std::unique_lock<std::mutex> lock(mutex);
    if (!job.started) {
        return;
    }
    ++waiting;
    done.wait(lock, [&] { return job.left == 0 && job.inside == 0; });
    --waiting;
    jobs.erase(std::remove(jobs.begin(), jobs.end(), &job), jobs.end());
}

//
// the functions by name
//

static rkv_host_engine * engine_create(int n_threads) {
    try {
        return new rkv_host_engine(n_threads);
    } catch (const std::exception &) {
        return nullptr;
    }
}

static void engine_destroy(rkv_host_engine * engine) {
    delete engine;
}

static rkv_host_job * job_new(rkv_host_engine * engine, const ggml_tensor * node, const rkv_host_tile * tiles, size_t n_tiles, float * partials) {
    try {
        return new rkv_host_job(*engine, node, tiles, n_tiles, partials);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

static void job_start(rkv_host_job * job) {
    job->engine.start(*job);
}

static uint64_t job_wait(rkv_host_job * job, size_t i, bool wait, rkv_tile_partials * partials) {
    const auto from = std::chrono::steady_clock::now();
    if (wait) {
        job->engine.wait_for(*job, i);
    }
    *partials = { &job->sums[i*job->n_rows*2], &job->o[i*job->n_rows*job->ld_o], (size_t) job->ld_o };
    return (uint64_t) std::chrono::nanoseconds(std::chrono::steady_clock::now() - from).count();
}

static uint64_t job_ns(const rkv_host_job * job) {
    return job->took_ns;
}

static void job_free(rkv_host_job * job) {
    job->engine.finish(*job);
    delete job;
}

const rkv_host_engine_api * rkv_host_engine_functions() {
    static const rkv_host_engine_api api = { engine_create, engine_destroy, job_new, partial_floats, job_start, job_wait, job_ns, job_free };
    return &api;
}
