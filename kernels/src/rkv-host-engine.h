#pragma once

// The threads that attend to tiles where they lie, and one node's tiles for them.

#include "rkv-attn-args.h"
#include "rkv-attn-mask.h"
#include "rkv-attn-narrow.h"
#include "rkv-attn-parts.h"
#include "rkv-host-api.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

// Units of work are parts of tiles, in the order of the list. A thread takes a run of them, so that it reads ahead.
struct rkv_host_job {
    rkv_host_job(rkv_host_engine & engine, const ggml_tensor * node, const rkv_host_tile * tiles, size_t n, float * partials);

    rkv_host_engine &                   engine;
    rkv::attn_args                      a;
    std::vector<rkv_host_tile>          tiles;
    rkv::row_parts                      parts;
    int                                 rows_max; // query rows of the largest part that a buffer must hold
    int                                 n_rows;   // query rows of a tile
    int                                 ld_o;
    std::unique_ptr<float[]>            own;      // the partials, unless the caller has room for them
    float *                             sums;     // [tiles, rows, 2]
    float *                             o;        // [tiles, rows, ld_o]
    std::unique_ptr<std::atomic<int>[]> missing;  // [tiles] parts that are not done
    std::atomic<size_t>                 next{ 0 };  // unit that nobody took
    std::atomic<size_t>                 left;       // units that are not done
    std::atomic<int>                    inside{ 0 }; // threads that look at the job
    std::atomic<bool>                   started{ false };
    int                                 node = -1;  // of memory, where its tiles lie, when it is one and there are others
    std::atomic<uint64_t>               took_ns{ 0 };
    std::chrono::steady_clock::time_point began;

    size_t n_unit() const { return tiles.size()*parts.n; }
    bool   is_done(size_t tile) const { return missing[tile].load(std::memory_order_acquire) == 0; }

    rkv::narrow_tile unit(size_t u) const;
};

struct rkv_host_engine {
    explicit rkv_host_engine(int n_threads);
    ~rkv_host_engine();

    void start(rkv_host_job & job);
    void wait_for(rkv_host_job & job, size_t tile);
    void finish(rkv_host_job & job);

private:
    std::mutex                 mutex;
    std::condition_variable    work;   // there is a job
    std::condition_variable    done;   // a tile that someone may wait for is done, or a thread left a job
    std::deque<rkv_host_job *> jobs;   // that have units which nobody took
    bool                       ends = false;
    int                        waiting = 0;
    std::vector<std::thread>   threads;

    const std::vector<std::vector<int>> nodes;   // processors of each node of memory, when there are several
    const std::vector<int>              allowed; // processors of the process

    int  node_of(const rkv_host_job & job) const;
    void run();
    void work_on(rkv_host_job & job, std::vector<char> & memory);
    void tell();
};

// What the CPU backend's registry gives.
const rkv_host_engine_api * rkv_host_engine_functions();
