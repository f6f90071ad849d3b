#pragma once

// Functions that run on the host and, where a device's compiler reads them, on a device.

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__MUSA_ARCH__)
#define RKV_ON_DEVICE 1
#define RKV_UNROLL _Pragma("unroll")
#else
#define RKV_UNROLL
#endif

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(__MUSACC__)
#define RKV_HD __host__ __device__ __forceinline__
#else
#define RKV_HD inline
#endif
