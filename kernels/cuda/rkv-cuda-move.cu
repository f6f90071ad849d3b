// Rows that are moved, and turned into another type on the way. The bodies are in rkv-cuda-bytes.h and rkv-cuda-convert.h.

#include "rkv-cuda-kernels.cuh"

constexpr int64_t THREADS    = 128;
constexpr int64_t BLOCKS_MAX = 512;

static int blocks_for(int64_t n) {
    return int(std::min(BLOCKS_MAX, (n + THREADS - 1)/THREADS));
}

template <typename WORD>
static __global__ void rkv_pull_rows(const rkv::pull_rows a) {
    const int64_t n = a.words(sizeof(WORD));
    for (int64_t i = int64_t(blockIdx.x)*blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x)*blockDim.x) {
        rkv::pull_word<WORD>(a, i);
    }
}

template <typename WORD>
static void launch_pull(const rkv::pull_rows & a, cudaStream_t stream) {
    rkv_pull_rows<WORD><<<blocks_for(a.words(sizeof(WORD))), int(THREADS), 0, stream>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

void rkv_cuda_pull_rows(const rkv::pull_rows & a, cudaStream_t stream) {
    if (a.rows == 0 || a.width == 0) {
        return;
    }
    switch (rkv::pull_word_bytes(a)) {
        case 16: launch_pull<rkv::words4>(a, stream); break;
        case 4:  launch_pull<uint32_t>(a, stream); break;
        case 2:  launch_pull<uint16_t>(a, stream); break;
        default: launch_pull<uint8_t>(a, stream); break;
    }
}

static __global__ void rkv_convert_rows(const rkv::convert_rows a) {
    const int64_t n = a.n();
    for (int64_t i = int64_t(blockIdx.x)*blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x)*blockDim.x) {
        rkv::convert_vec(a, i);
    }
}

void rkv_cuda_convert_rows(const rkv::convert_rows & a, cudaStream_t stream) {
    if (a.n() > 0) {
        rkv_convert_rows<<<blocks_for(a.n()), int(THREADS), 0, stream>>>(a);
        CUDA_CHECK(cudaGetLastError());
    }
}
