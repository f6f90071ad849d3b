#pragma once

// What we ask of CUDA's runtime and upstream does not: its names on the runtimes that upstream maps CUDA's to (ggml-cuda/vendors).

#if defined(GGML_USE_HIP)
#define cudaErrorNotReady     hipErrorNotReady
#define cudaEventBlockingSync hipEventBlockingSync
#define cudaEventDefault      hipEventDefault
#define cudaEventElapsedTime  hipEventElapsedTime
#define cudaEventQuery        hipEventQuery
#elif defined(GGML_USE_MUSA)
#define cudaErrorNotReady        musaErrorNotReady
#define cudaEventBlockingSync    musaEventBlockingSync
#define cudaEventDefault         musaEventDefault
#define cudaEventElapsedTime     musaEventElapsedTime
#define cudaEventQuery           musaEventQuery
#define cudaHostAlloc            musaHostAlloc
#define cudaHostAllocMapped      musaHostAllocMapped
#define cudaHostAllocPortable    musaHostAllocPortable
#define cudaHostGetDevicePointer musaHostGetDevicePointer
#endif
