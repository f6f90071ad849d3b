#pragma once

// Kernels that are launched from more than one place.

#include "rkv-cuda-body.h"
#include "rkv-cuda-bytes.h"
#include "rkv-cuda-convert.h"
#include "rkv-cuda-merge.h"

#include "common.cuh"

// Partials of `n_tiles` tiles.
void rkv_cuda_attn_tiles(const rkv::attn_tiles & a, int n_tiles, cudaStream_t stream);

// Merges tiles into the rows of a stream.
void rkv_cuda_merge_tiles(const rkv::merge_tiles & a, cudaStream_t stream);

// Rows of pinned host memory, or of the device's own, one behind the other.
void rkv_cuda_pull_rows(const rkv::pull_rows & a, cudaStream_t stream);

// Rows within the device's memory, from one type to another.
void rkv_cuda_convert_rows(const rkv::convert_rows & a, cudaStream_t stream);

// A SET_ROWS node that writes into a cache of two parts.
void rkv_cuda_set_rows(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
