// New rows, written into a cache of two parts: quantised once, on the device, and put into the window, or over the link into the tail.
//
// A block makes the bytes of up to THREADS quantised blocks of one row in shared memory, and then writes them out side by side: what
// goes to host memory leaves the device in whole words and next to each other.

#include "rkv-cuda-kernels.cuh"

#include "rkv-attn-node.h"
#include "rkv-set-rows.h"
#include "rkv-split-rows.h"

#include "cpy-utils.cuh"

static constexpr int THREADS = 128;

template <typename T> static __device__ void put_one(const float * x, T * y) {
    *y = ggml_cuda_cast<T>(*x);
}

static __device__ void put_half(const half * x, half * y) {
    *y = *x;
}

// Of which part rows are written: parts of two types take a launch each.
enum rows_of { ROWS_OF_BOTH, ROWS_OF_WINDOW, ROWS_OF_TAIL };

struct rows_args {
    const char *    src;
    const char *    idxs;
    size_t          src_nb;    // bytes of a row
    size_t          idxs_nb;   // bytes of an index
    bool            wide;      // indices are of 64 bits
    int             n_blocks;  // of a row
    rkv::split_rows to;
    rows_of         which;
};

template <typename SRC, typename BLOCK, int QK, void (*PUT)(const SRC *, BLOCK *)>
static __global__ void __launch_bounds__(THREADS, 1) rkv_set_rows(const rows_args a) {
    __shared__ __align__(16) BLOCK made[THREADS];

    const int64_t row    = blockIdx.y;
    const int     block0 = blockIdx.x*THREADS;
    const int     n      = min(THREADS, a.n_blocks - block0);

    if (int(threadIdx.x) < n) {
        const SRC * src = (const SRC *) (a.src + row*a.src_nb) + size_t(block0 + threadIdx.x)*QK;
        PUT(src, &made[threadIdx.x]);
    }
    __syncthreads();

    const char *  at  = a.idxs + row*a.idxs_nb;
    const int64_t idx = a.wide ? *(const int64_t *) at : int64_t(*(const int32_t *) at);
    if (a.which != ROWS_OF_BOTH && a.to.in_window(idx) != (a.which == ROWS_OF_WINDOW)) {
        return;
    }

    const rkv::pull_rows bytes = { a.to.row(idx) + size_t(block0)*sizeof(BLOCK), (const char *) made, 0, int64_t(n*sizeof(BLOCK)), 1 };
    if (rkv::pull_word_bytes(bytes) >= 4) {
        for (int64_t i = threadIdx.x; i < bytes.words(4); i += THREADS) {
            rkv::pull_word<uint32_t>(bytes, i);
        }
    } else {
        for (int64_t i = threadIdx.x; i < bytes.words(2); i += THREADS) {
            rkv::pull_word<uint16_t>(bytes, i);
        }
    }
}

template <typename SRC, typename BLOCK, int QK, void (*PUT)(const SRC *, BLOCK *)>
static void launch(rows_args a, int64_t n_channels, int64_t n_rows, cudaStream_t stream) {
    static_assert(sizeof(BLOCK)%2 == 0, "rows are written in words of two bytes at the least");
    constexpr int64_t rows_at_once = 32768; // of a grid
    GGML_ASSERT(n_channels%QK == 0);
    a.n_blocks = int(n_channels/QK);
    const char * src  = a.src;
    const char * idxs = a.idxs;
    for (int64_t from = 0; from < n_rows; from += rows_at_once) {
        a.src  = src + from*a.src_nb;
        a.idxs = idxs + from*a.idxs_nb;
        const dim3 grid((a.n_blocks + THREADS - 1)/THREADS, std::min(rows_at_once, n_rows - from));
        rkv_set_rows<SRC, BLOCK, QK, PUT><<<grid, THREADS, 0, stream>>>(a);
        CUDA_CHECK(cudaGetLastError());
    }
}

static void launch_as(ggml_type type, const rows_args & a, const ggml_tensor * rows, cudaStream_t stream) {
    const int64_t n      = rows->ne[0];
    const int64_t n_rows = rows->ne[1];
    if (rows->type == GGML_TYPE_F16) {
        GGML_ASSERT(type == GGML_TYPE_F16);
        launch<half, half, 1, put_half>(a, n, n_rows, stream);
        return;
    }
    switch (type) {
        case GGML_TYPE_F32:    launch<float, float,        1,      put_one<float>>            (a, n, n_rows, stream); break;
        case GGML_TYPE_F16:    launch<float, half,         1,      put_one<half>>             (a, n, n_rows, stream); break;
        case GGML_TYPE_BF16:   launch<float, nv_bfloat16,  1,      put_one<nv_bfloat16>>      (a, n, n_rows, stream); break;
        case GGML_TYPE_Q4_0:   launch<float, block_q4_0,   QK4_0,  quantize_f32_q4_0_block>   (a, n, n_rows, stream); break;
        case GGML_TYPE_Q4_1:   launch<float, block_q4_1,   QK4_1,  quantize_f32_q4_1_block>   (a, n, n_rows, stream); break;
        case GGML_TYPE_Q5_0:   launch<float, block_q5_0,   QK5_0,  quantize_f32_q5_0_block>   (a, n, n_rows, stream); break;
        case GGML_TYPE_Q5_1:   launch<float, block_q5_1,   QK5_1,  quantize_f32_q5_1_block>   (a, n, n_rows, stream); break;
        case GGML_TYPE_Q8_0:   launch<float, block_q8_0,   QK8_0,  quantize_f32_q8_0_block>   (a, n, n_rows, stream); break;
        case GGML_TYPE_IQ4_NL: launch<float, block_iq4_nl, QK4_NL, quantize_f32_iq4_nl_block> (a, n, n_rows, stream); break;
        default:               GGML_ABORT("rolling-kv: rows of %s cannot be written in two parts", ggml_type_name(type));
    }
}

void rkv_cuda_set_rows(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor * rows = dst->src[0];
    const ggml_tensor * idxs = dst->src[1];
    const ggml_tensor * tail = dst->src[RKV_SET_ROWS_SRC_TAIL];
    GGML_ASSERT(tail->ne[0] == dst->ne[0] && rows->ne[0] == dst->ne[0] && rows->ne[2] == 1 && rows->ne[3] == 1);

    rows_args a = {};
    a.src     = (const char *) rows->data;
    a.idxs    = (const char *) idxs->data;
    a.src_nb  = rows->nb[1];
    a.idxs_nb = idxs->nb[0];
    a.wide    = idxs->type == GGML_TYPE_I64;

    a.to.window     = (char *) dst->data;
    a.to.tail       = (char *) tail->data;
    a.to.row_window = dst->nb[1];
    a.to.row_tail   = tail->nb[1];
    a.to.n_window   = dst->op_params[RKV_SET_ROWS_PARAM_WINDOW];
    a.to.n_tail     = dst->op_params[RKV_SET_ROWS_PARAM_KV_SIZE] - a.to.n_window;
    a.to.misplace   = rkv_fault_get() == RKV_FAULT_WRONG_PART;

    if (rows->ne[0] == 0 || rows->ne[1] == 0) {
        return;
    }
    if (tail->type == dst->type) {
        launch_as(dst->type, a, rows, ctx.stream());
        return;
    }
    a.which = ROWS_OF_WINDOW;
    launch_as(dst->type, a, rows, ctx.stream());
    a.which = ROWS_OF_TAIL;
    launch_as(tail->type, a, rows, ctx.stream());
}
