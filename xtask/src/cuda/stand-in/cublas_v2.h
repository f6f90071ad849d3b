#pragma once

// What upstream's common.cuh names of cuBLAS, so that our kernels can be compiled without the 421 MB of it. Nothing is linked.

#include <cuda_runtime.h>

#include <stddef.h>

typedef struct cublasContext * cublasHandle_t;

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
} cublasStatus_t;

typedef enum {
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
} cublasMath_t;

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t * handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void * workspace, size_t bytes);
const char *   cublasGetStatusString(cublasStatus_t status);
}
