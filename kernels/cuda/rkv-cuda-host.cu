#include "rkv-cuda-host.h"

#include "rkv-cuda-kernels.cuh"
#include "rkv-cuda-vendors.h"

#include "rkv-host-node.h"

#include "common.cuh"
#include "ggml-impl.h"

#include <algorithm>

//
// memory of a step
//

struct rkv_cuda_host::pinned {
    static constexpr size_t CHUNK     = size_t(4) << 20;
    static constexpr size_t ALIGNMENT = 256;

    struct chunk {
        char * base;
        size_t size;
    };
    std::vector<chunk> chunks;
    size_t             at   = 0; // chunk
    size_t             used = 0; // bytes of it

    ~pinned() {
        for (const chunk & c : chunks) {
            CUDA_CHECK(cudaFreeHost(c.base));
        }
    }

    void reset() { at = used = 0; }

    // NULL when there is none.
    char * take(size_t bytes) {
        bytes = (bytes + ALIGNMENT - 1)/ALIGNMENT*ALIGNMENT;
        while (at < chunks.size() && used + bytes > chunks[at].size) {
            ++at;
            used = 0;
        }
        if (at == chunks.size()) {
            void *       base = nullptr;
            const size_t size = std::max(bytes, CHUNK);
            if (cudaHostAlloc(&base, size, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
                (void) cudaGetLastError();
                return nullptr;
            }
            chunks.push_back({ (char *) base, size });
        }
        used += bytes;
        return chunks[at].base + used - bytes;
    }
};

struct rkv_cuda_host::set {
    pinned                         memory;
    std::deque<rkv_cuda_host_node> nodes;
    cudaEvent_t                    ended    = nullptr;
    bool                           is_given = false; // `ended` was recorded
};

//
// steps
//

rkv_cuda_host::rkv_cuda_host(ggml_backend_cuda_context & ctx) : ctx(ctx) {}

rkv_cuda_host::~rkv_cuda_host() {
    for (auto & s : sets) {
        if (s) {
            clear(*s);
            CUDA_CHECK(cudaEventDestroy(s->ended));
        }
    }
    if (engine) {
        api->destroy(engine);
    }
}

void rkv_cuda_host::use(const rkv_host_engine_api * functions, int threads) {
    api       = functions;
    n_threads = threads;
}

// Waits for the step that used it.
void rkv_cuda_host::clear(set & s) {
    if (s.is_given) {
        CUDA_CHECK(cudaEventSynchronize(s.ended));
        s.is_given = false;
    }
    for (rkv_cuda_host_node & n : s.nodes) {
        ended_ns    += api->job_ns(n.job);
        ended_bytes += n.bytes;
        api->job_free(n.job);
    }
    s.nodes.clear();
    s.memory.reset();
}

void rkv_cuda_host::begin() {
    now = 1 - now;
    if (!sets[now]) {
        sets[now].reset(new set());
        CUDA_CHECK(cudaEventCreateWithFlags(&sets[now]->ended, cudaEventDisableTiming | cudaEventBlockingSync));
    }
    clear(*sets[now]);
}

rkv_cuda_host_node * rkv_cuda_host::plan(const ggml_tensor * from, std::vector<rkv_host_tile> tiles) {
    if (!engine && !(engine = api->create(n_threads))) {
        return nullptr;
    }
    set & s = *sets[now];
    s.nodes.emplace_back();
    rkv_cuda_host_node & n = s.nodes.back();
    n.from  = from;
    n.tiles = std::move(tiles);
    n.node  = *from;
    n.query = rkv::dense_like(from->src[0], s.memory.take(rkv::dense_bytes(from->src[0])));
    n.node.src[0] = &n.query;
    n.brings_mask = false;
    if (from->src[3]) {
        const auto known = std::find_if(s.nodes.begin(), s.nodes.end(), [&](const rkv_cuda_host_node & o) { return &o != &n && o.from->src[3] == from->src[3]; });
        n.brings_mask = known == s.nodes.end();
        n.mask        = n.brings_mask ? rkv::dense_like(from->src[3], s.memory.take(rkv::dense_bytes(from->src[3]))) : known->mask;
        n.node.src[3] = &n.mask;
    }
    n.results = (float *) s.memory.take(n.tiles.size()*api->partial_floats(from)*sizeof(float));
    const bool has_memory = n.results && n.query.data && (!from->src[3] || n.mask.data);
    n.job = has_memory ? api->job_new(engine, &n.node, n.tiles.data(), n.tiles.size(), n.results) : nullptr;
    if (!n.job) {
        s.nodes.pop_back();
        return nullptr;
    }
    for (const uint64_t bytes : rkv::host_tile_bytes(from, n.tiles)) {
        n.bytes += bytes;
    }
    sums.tiles += n.tiles.size();
    sums.bytes += n.bytes;
    sums.down  += rkv::dense_bytes(from->src[0]) + (n.brings_mask ? rkv::dense_bytes(from->src[3]) : 0);
    sums.up    += rkv::host_partial_bytes(from)*n.tiles.size();
    return &n;
}

void rkv_cuda_host::end() {
    set & s = *sets[now];
    if (!s.nodes.empty()) {
        CUDA_CHECK(cudaEventRecord(s.ended, ctx.stream(ctx.device, 0)));
        s.is_given = true;
    }
}

//
// in the stream
//

void rkv_cuda_host::go_down(const ggml_tensor * from, const ggml_tensor & to) {
    for (const rkv::dense_run & run : rkv::dense_runs(from)) {
        CUDA_CHECK(cudaMemcpy2DAsync((char *) to.data + run.to, run.width, (const char *) from->data + run.from, run.stride, run.width, run.rows,
                cudaMemcpyDeviceToHost, ctx.stream()));
    }
}

// A host function may not call CUDA; these do not.
void rkv_cuda_host::run_start(void * data) {
    const auto & w = *(const rkv_cuda_host_node::wait *) data;
    w.owner->api->job_start(w.job);
}

void rkv_cuda_host::run_wait(void * data) {
    const auto & w = *(const rkv_cuda_host_node::wait *) data;
    for (size_t i = w.first; i < w.first + w.count; ++i) {
        rkv_tile_partials none;
        w.owner->sums.wait_ns += w.owner->api->job_wait(w.job, i, true, &none);
    }
}

void rkv_cuda_host::start(rkv_cuda_host_node & n) {
    go_down(n.from->src[0], n.query);
    if (n.brings_mask) {
        go_down(n.from->src[3], n.mask);
    }
    n.waits.push_back({ this, n.job, 0, 0 });
    CUDA_CHECK(cudaLaunchHostFunc(ctx.stream(), run_start, &n.waits.back()));
}

void rkv_cuda_host::partials(rkv_cuda_host_node & n, size_t first, size_t count, float * to_sums, float * to_o) {
    n.waits.push_back({ this, n.job, first, count });
    CUDA_CHECK(cudaLaunchHostFunc(ctx.stream(), run_wait, &n.waits.back()));
    const int64_t rows = n.node.src[0]->ne[1]*n.node.src[0]->ne[2];
    const int64_t d_v  = n.node.ne[0];
    const int64_t ld_o = int64_t(api->partial_floats(n.from))/rows - 2;
    const float * sums = n.results;
    const float * o    = n.results + int64_t(n.tiles.size())*rows*2;
    const int64_t of_sums = rows*2*int64_t(sizeof(float));
    rkv_cuda_pull_rows({ (char *) to_sums, (const char *) (sums + int64_t(first)*rows*2), of_sums, of_sums, int64_t(count) }, ctx.stream());
    rkv_cuda_pull_rows({ (char *) to_o, (const char *) (o + int64_t(first)*rows*ld_o), ld_o*int64_t(sizeof(float)), d_v*int64_t(sizeof(float)), int64_t(count)*rows },
            ctx.stream());
}
