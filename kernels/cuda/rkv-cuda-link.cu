#include "rkv-cuda-link.h"

#include "common.cuh"
#include "ggml-cuda.h"
#include "ggml-impl.h"

#include <algorithm>
#include <chrono>
#include <mutex>

namespace {

// Memory to measure with, on both sides.
struct trial {
    static constexpr size_t MOST = size_t(32) << 20;

    void *       host   = nullptr;
    void *       device = nullptr;
    cudaStream_t stream = nullptr;

    trial() {
        ok = cudaMallocHost(&host, MOST) == cudaSuccess && cudaMalloc(&device, MOST) == cudaSuccess &&
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
        if (!ok) {
            (void) cudaGetLastError(); // measured or not is told by the caller
        }
    }
    ~trial() {
        if (stream) {
            CUDA_CHECK(cudaStreamDestroy(stream));
        }
        if (device) {
            CUDA_CHECK(cudaFree(device));
        }
        if (host) {
            CUDA_CHECK(cudaFreeHost(host));
        }
    }

    // Seconds of the fastest of a few copies.
    double took(size_t bytes) const {
        double best = 1e9;
        for (int i = 0; i < 5; ++i) {
            const auto from = std::chrono::steady_clock::now();
            CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
            CUDA_CHECK(cudaStreamSynchronize(stream));
            best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
        }
        return best;
    }

    bool ok;
};

} // namespace

static rkv::link_speed measure(int device) {
    constexpr size_t SMALL = 4096;
    ggml_cuda_set_device(device);
    const trial t;
    if (!t.ok) {
        GGML_LOG_WARN("rolling-kv: no memory to measure the link of device %d; reckoning with 12 GB/s\n", device);
        return { 12e9, 10e-6 };
    }
    const double small = t.took(SMALL);
    const double large = std::max(t.took(trial::MOST), 1.01*small);
    rkv::link_speed link;
    link.bytes_s   = double(trial::MOST - SMALL)/(large - small);
    link.latency_s = std::max(small - SMALL/link.bytes_s, 0.0);
    return link;
}

rkv::link_speed rkv_cuda_link(int device) {
    static std::once_flag  once[GGML_CUDA_MAX_DEVICES];
    static rkv::link_speed links[GGML_CUDA_MAX_DEVICES];
    std::call_once(once[device], [&] { links[device] = measure(device); });
    return links[device];
}
