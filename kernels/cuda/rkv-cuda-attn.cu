// Partials of tiles, and their merge: the barriers and what lanes tell each other. The rest is in rkv-cuda-body.h and rkv-cuda-merge.h.

#include "rkv-cuda-kernels.cuh"

using rkv::attn_block;
using rkv::attn_shared;
using rkv::attn_share;
using rkv::attn_tiles;
using rkv::merge_share;
using rkv::merge_tiles;

template <int R>
static __device__ __forceinline__ void chunk_softmax(const attn_shared & sh) {
    constexpr int n_warps = rkv::ATTN_THREADS/32;
    const int warp = threadIdx.x/32;
    const int lane = threadIdx.x%32;
    for (int r = warp; r < R; r += n_warps) {
        float m = -INFINITY;
        for (int c = lane; c < rkv::ATTN_CHUNK; c += 32) {
            m = fmaxf(m, sh.s[r*rkv::ATTN_CHUNK + c]);
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFF, m, offset, 32));
        }
        if (lane == 0) {
            rkv::attn_put_max(sh, r, m);
        }
        ggml_cuda_syncwarp();
        float sum = 0.0f;
        for (int c = lane; c < rkv::ATTN_CHUNK; c += 32) {
            sum += rkv::attn_put_weight(sh, r, c);
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset, 32);
        }
        if (lane == 0) {
            sh.sum[r] = sh.sum[r]*sh.shrink[r] + sum;
        }
    }
}

template <int R, int TYPE>
static __device__ __forceinline__ void chunk_scores(const attn_tiles & a, const attn_block & b, const attn_shared & sh, int c0) {
    const int lane = threadIdx.x%rkv::ATTN_LANES;
    for (int c = threadIdx.x/rkv::ATTN_LANES; c < rkv::ATTN_CHUNK; c += rkv::ATTN_THREADS/rkv::ATTN_LANES) {
        float acc[R] = {};
        if (sh.live[c]) {
            rkv::attn_dot<R, TYPE>(a, b, sh, c0 + c, lane, acc);
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
            for (int offset = rkv::ATTN_LANES/2; offset > 0; offset /= 2) {
                acc[r] += __shfl_xor_sync(0xFFFFFFFF, acc[r], offset, rkv::ATTN_LANES);
            }
            if (lane == r) {
                rkv::attn_put_score(a, sh, r, c, acc[r]);
            }
        }
    }
}

// Grid: tiles, KV heads, groups of R query rows.
template <int R, int TYPE_K, int TYPE_V>
static __global__ void __launch_bounds__(rkv::ATTN_THREADS, R >= 4 ? 3 : 4) rkv_attn_tiles(const attn_tiles a) {
    static_assert(R <= rkv::ATTN_LANES, "each lane puts down the score of one row");
    extern __shared__ float memory[];
    const attn_shared sh  = attn_shared::carve(memory, R, a.d_k);
    const attn_block  b   = rkv::attn_block_of(a, blockIdx.x, blockIdx.y, blockIdx.z, R);
    const int         tid = threadIdx.x;

    const attn_share share = rkv::attn_share_of(a.d_v, tid);
    float acc[R][rkv::ATTN_VEC] = {};

    rkv::attn_load_q<R>(a, b, sh, tid);
    for (int c0 = 0; c0 < b.n_cells; c0 += rkv::ATTN_CHUNK) {
        rkv::attn_load_mask<R>(a, b, sh, c0, tid);
        __syncthreads();
        if (!__syncthreads_or(rkv::attn_note_live<R>(sh, tid))) {
            continue;
        }
        chunk_scores<R, TYPE_K>(a, b, sh, c0);
        __syncthreads();
        chunk_softmax<R>(sh);
        __syncthreads();
        if (!share.idle) {
            rkv::attn_add_v<R, TYPE_V>(a, b, sh, share, c0, acc);
        }
        __syncthreads();
    }
    __syncthreads(); // of a tile that nobody sees, the first barrier

    for (int r = 0; r < R && b.row0 + r < a.rows_of_kv_head(); ++r) {
        if (tid == 0) {
            rkv::attn_put_sums(a, b, sh, r);
        }
        if (sh.sum[r] == 0.0f) {
            continue;
        }
        // The row is not known when registers are laid out.
        float x[rkv::ATTN_VEC];
#pragma unroll
        for (int s = 0; s < R; ++s) {
#pragma unroll
            for (int j = 0; j < rkv::ATTN_VEC; ++j) {
                x[j] = s == r ? acc[s][j] : s == 0 ? 0.0f : x[j];
            }
        }
        rkv::attn_leave(sh, share, a.d_v, x);
        __syncthreads();
        rkv::attn_put_o(a, b, sh, r, tid);
        __syncthreads();
    }
}

template <int R, int TYPE_K, int TYPE_V>
static void launch(const attn_tiles & a, int n_tiles, cudaStream_t stream) {
    const int    n_groups = (a.rows_of_kv_head() + R - 1)/R;
    const size_t bytes    = attn_shared::floats(R, a.d_k)*sizeof(float);
    const dim3   grid(n_tiles, a.n_head/a.n_gqa, n_groups);
    rkv_attn_tiles<R, TYPE_K, TYPE_V><<<grid, rkv::ATTN_THREADS, bytes, stream>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

// As many rows a block as there are, up to 8: K and V are read once for all of them.
template <int TYPE_K, int TYPE_V>
static void launch_rows(const attn_tiles & a, int n_tiles, cudaStream_t stream) {
    const int rows = a.rows_of_kv_head();
    if (rows == 1) {
        launch<1, TYPE_K, TYPE_V>(a, n_tiles, stream);
    } else if (rows == 2) {
        launch<2, TYPE_K, TYPE_V>(a, n_tiles, stream);
    } else if (rows <= 4) {
        launch<4, TYPE_K, TYPE_V>(a, n_tiles, stream);
    } else {
        launch<8, TYPE_K, TYPE_V>(a, n_tiles, stream);
    }
}

void rkv_cuda_attn_tiles(const attn_tiles & a, int n_tiles, cudaStream_t stream) {
    GGML_ASSERT(n_tiles > 0 && a.d_k%rkv::ATTN_VEC == 0 && a.d_v%rkv::ATTN_VEC == 0 && a.d_k <= rkv::ATTN_D_MAX && a.d_v <= rkv::ATTN_D_MAX);
    if (a.type_k != a.type_v) {
        launch_rows<rkv::ATTN_ANY_TYPE, rkv::ATTN_ANY_TYPE>(a, n_tiles, stream);
        return;
    }
    switch (a.type_k) {
        case GGML_TYPE_F32:  launch_rows<GGML_TYPE_F32,  GGML_TYPE_F32> (a, n_tiles, stream); break;
        case GGML_TYPE_F16:  launch_rows<GGML_TYPE_F16,  GGML_TYPE_F16> (a, n_tiles, stream); break;
        case GGML_TYPE_BF16: launch_rows<GGML_TYPE_BF16, GGML_TYPE_BF16>(a, n_tiles, stream); break;
        case GGML_TYPE_Q4_0: launch_rows<GGML_TYPE_Q4_0, GGML_TYPE_Q4_0>(a, n_tiles, stream); break;
        case GGML_TYPE_Q4_1: launch_rows<GGML_TYPE_Q4_1, GGML_TYPE_Q4_1>(a, n_tiles, stream); break;
        case GGML_TYPE_Q5_0: launch_rows<GGML_TYPE_Q5_0, GGML_TYPE_Q5_0>(a, n_tiles, stream); break;
        case GGML_TYPE_Q5_1: launch_rows<GGML_TYPE_Q5_1, GGML_TYPE_Q5_1>(a, n_tiles, stream); break;
        case GGML_TYPE_Q8_0: launch_rows<GGML_TYPE_Q8_0, GGML_TYPE_Q8_0>(a, n_tiles, stream); break;
        default:             GGML_ABORT("rolling-kv: no tiled attention over %s", ggml_type_name(ggml_type(a.type_k)));
    }
}

//
// merging
//

// Grid: rows.
static __global__ void __launch_bounds__(rkv::MERGE_THREADS, 1) rkv_merge_tiles(const merge_tiles a) {
    constexpr int n_warps = rkv::MERGE_THREADS/32;
    extern __shared__ float memory[];
    __shared__ float maxima[n_warps];
    float * weights = memory;            // [n_made]
    float * runs    = memory + a.n_made; // [n_group, d_v + 1]

    const int r   = blockIdx.x;
    const int tid = threadIdx.x;

    float m = rkv::merge_max(a, r, tid);
    for (int offset = 16; offset > 0; offset /= 2) {
        m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFF, m, offset, 32));
    }
    if (tid%32 == 0) {
        maxima[tid/32] = m;
    }
    __syncthreads();
    const float max_before = a.first ? -INFINITY : a.state[r*2];
    const float sum_before = a.first ? 0.0f : a.state[r*2 + 1];
    m = max_before;
    for (int w = 0; w < n_warps; ++w) {
        m = fmaxf(m, maxima[w]);
    }
    const float weight_before = m == max_before ? 1.0f : expf(max_before - m);

    rkv::merge_weights(a, r, m, weights, tid);
    __syncthreads();

    const merge_share share = rkv::merge_share_of(a.d_v, tid);
    if (!share.idle) {
        float x[5];
        rkv::merge_run(a, r, share, weights, x);
        float * run = runs + share.group*(a.d_v + 1);
        for (int j = 0; j < 4; ++j) {
            run[share.d0 + j] = x[j];
        }
        if (share.d0 == 0) {
            run[a.d_v] = x[4];
        }
    }
    __syncthreads();

    const float sum = rkv::merge_groups(a, runs, share.n_group, sum_before, weight_before, a.d_v);
    const float end = a.last ? rkv::merge_end(a, r, m, sum) : 1.0f;
    float *     row = a.row(r);
    for (int d = tid; d < a.d_v; d += rkv::MERGE_THREADS) {
        row[d] = rkv::merge_groups(a, runs, share.n_group, a.first ? 0.0f : row[d], weight_before, d)*end;
    }
    // Every thread has read the state as it was: it did so before the last barrier.
    if (tid == 0) {
        a.state[r*2]     = m;
        a.state[r*2 + 1] = sum;
    }
}

void rkv_cuda_merge_tiles(const merge_tiles & a, cudaStream_t stream) {
    GGML_ASSERT(a.n_made <= rkv::MERGE_TILES_MAX && a.d_v%4 == 0 && a.d_v/4 <= rkv::MERGE_THREADS);
    const int    n_group = rkv::MERGE_THREADS/(a.d_v/4);
    const size_t bytes   = (size_t(a.n_made) + size_t(n_group)*(a.d_v + 1))*sizeof(float);
    rkv_merge_tiles<<<a.n_rows, rkv::MERGE_THREADS, bytes, stream>>>(a);
    CUDA_CHECK(cudaGetLastError());
}
