#pragma once

// A CUDA runtime without a device: memory is the host's, copies and host functions are carried out at once, kernels are counted and compute
// nothing. A stream that is captured keeps what it is given, and a launch of the graph carries it out. What the real runtime refuses while
// capturing is refused. At the end of the process a report of what was asked is written to the file that REHEARSAL_REPORT names.
//
// Every stream has a clock. What it is given ends later than what it was given before and than what it waits for, by what it takes: a copy
// to the device by the link, a kernel as told. Who synchronizes with a stream waits until its clock is reached.
//
// REHEARSAL_DEVICES (1), REHEARSAL_MIB (4096, of each), REHEARSAL_LINK (MB/s to the device; 0: no time) and REHEARSAL_KERNEL (ns of each; 0) say
// what there seems to be.

#include <cuda_runtime_api.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

// What the runtime's objects are here.
struct CUgraph_st {
    std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
    std::vector<std::function<void()>> work;
};
struct CUstream_st {
    CUgraph_st * graph = nullptr; // while it is captured
    double       until = 0;       // seconds; what it was given has ended
};
struct CUevent_st {
    CUgraph_st * graph = nullptr; // that it was recorded in
    double       until = 0;       // seconds; what was before it has ended
};

namespace rehearsal {

struct runtime;
runtime & rt();

inline long number(const char * name, long otherwise) {
    const char * text = getenv(name);
    return text ? atol(text) : otherwise;
}

struct runtime {
    std::recursive_mutex mutex;
    int                  devices = int(number("REHEARSAL_DEVICES", 1));
    size_t               total   = size_t(number("REHEARSAL_MIB", 4096)) << 20;
    std::map<int, size_t>                          used;
    std::unordered_map<void *, std::pair<int, size_t>> blocks;
    std::unordered_map<const void *, std::string>  kernels;
    std::map<std::string, uint64_t>                counts;
    CUstream_st                                    none; // the default stream
    std::set<CUstream_st *>                        streams;

    void add(const std::string & what, uint64_t n = 1) { counts[what] += n; }

    void report() {
        const char * file = getenv("REHEARSAL_REPORT");
        FILE * f = file ? fopen(file, "w") : nullptr;
        if (!f) {
            return;
        }
        fprintf(f, "{");
        const char * comma = "";
        for (const auto & [what, n] : counts) {
            fprintf(f, "%s\n  \"%s\": %llu", comma, what.c_str(), (unsigned long long) n);
            comma = ",";
        }
        fprintf(f, "\n}\n");
        fclose(f);
    }
};

// Outlives whoever frees memory as the process ends.
inline runtime & rt() {
    static runtime & r = *[] {
        atexit([] { rt().report(); });
        return new runtime;
    }();
    return r;
}

inline thread_local int         device = 0;
inline thread_local cudaError_t last   = cudaSuccess;

inline cudaError_t said(cudaError_t error) {
    if (error != cudaSuccess) {
        last = error;
        const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
        rt().add(std::string("refused: ") + cudaGetErrorString(error));
    }
    return error;
}

// cudaStreamLegacy and cudaStreamPerThread are small numbers.
inline CUstream_st & of(cudaStream_t s) {
    return s && s != cudaStreamLegacy && s != cudaStreamPerThread ? *s : rt().none;
}

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Work that takes so many seconds of its stream: carried out now, or when the graph that is captured is launched.
inline cudaError_t give(cudaStream_t s, double seconds, std::function<void()> work) {
    CUstream_st & stream = of(s);
    const auto all = [&stream, seconds, work = std::move(work)] {
        work();
        stream.until = std::max(stream.until, now()) + seconds;
    };
    if (stream.graph) {
        stream.graph->work.push_back(all);
    } else {
        all();
    }
    return cudaSuccess;
}

inline void wait_until(double at) {
    while (now() < at) {
    }
}

inline const char * direction(cudaMemcpyKind kind) {
    switch (kind) {
        case cudaMemcpyHostToDevice:   return "bytes to the device";
        case cudaMemcpyDeviceToHost:   return "bytes to the host";
        case cudaMemcpyDeviceToDevice: return "bytes within the device";
        default:                       return "bytes somewhere";
    }
}

// What a copy takes.
inline double seconds_of(size_t bytes, cudaMemcpyKind kind) {
    static const double rate = double(number("REHEARSAL_LINK", 0))*1e6;
    return rate > 0 && kind == cudaMemcpyHostToDevice ? double(bytes)/rate : 0.0;
}

} // namespace rehearsal

using namespace rehearsal;
