// Devices, memory and kernels. See runtime.h.

#include "runtime.h"

static void * take(size_t bytes) {
    void * p = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

static cudaError_t alloc(void ** p, size_t bytes, bool on_device) {
    runtime & r = rt();
    const std::lock_guard<std::recursive_mutex> lock(r.mutex);
    if (on_device && r.used[device] + bytes > r.total) {
        return said(cudaErrorMemoryAllocation);
    }
    *p = take(bytes);
    if (!*p) {
        return said(cudaErrorMemoryAllocation);
    }
    r.used[device] += on_device ? bytes : 0;
    r.blocks[*p] = { on_device ? device : -1, bytes };
    r.add(on_device ? "allocations on the device" : "allocations of pinned memory");
    return cudaSuccess;
}

static cudaError_t give_back(void * p) {
    runtime & r = rt();
    const std::lock_guard<std::recursive_mutex> lock(r.mutex);
    if (!p) {
        return cudaSuccess;
    }
    const auto block = r.blocks.find(p);
    if (block == r.blocks.end()) {
        return said(cudaErrorInvalidValue);
    }
    if (block->second.first >= 0) {
        r.used[block->second.first] -= block->second.second;
    }
    munmap(p, block->second.second ? block->second.second : 1);
    r.blocks.erase(block);
    return cudaSuccess;
}

static cudaError_t launch(const void * kernel, cudaStream_t s) {
    runtime & r = rt();
    const std::lock_guard<std::recursive_mutex> lock(r.mutex);
    const auto name = r.kernels.find(kernel);
    const std::string kind = name == r.kernels.end() ? "" : name->second.find("rkv") != std::string::npos ? " of rolling-kv" : "";
    const bool captured = of(s).graph != nullptr;
    r.add((captured ? "kernels captured" : "kernels launched") + kind);
    static const double seconds = double(number("REHEARSAL_KERNEL", 0))*1e-9;
    return give(s, seconds, [captured, kind] {
        if (captured) {
            rt().add("kernels replayed" + kind);
        }
    });
}

extern "C" {

//
// devices
//

cudaError_t cudaGetDeviceCount(int * n) { *n = rt().devices; return *n > 0 ? cudaSuccess : said(cudaErrorNoDevice); }
cudaError_t cudaSetDevice(int d) { device = d; return cudaSuccess; }
cudaError_t cudaGetDevice(int * d) { *d = device; return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) {
    double until = 0;
    {
        const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
        for (const CUstream_st * s : rt().streams) {
            until = std::max(until, s->until);
        }
    }
    wait_until(until);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int * can, int, int) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int * value, cudaDeviceAttr, int) { *value = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char * id, int length, int d) { snprintf(id, length, "0000:%02x:00.0", d + 1); return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp * p, int d) {
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "no device %d", d);
    p->totalGlobalMem              = rt().total;
    p->major                       = 9;
    p->warpSize                    = 32;
    p->multiProcessorCount         = 16;
    p->maxThreadsPerBlock          = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerBlock           = 48 << 10;
    p->sharedMemPerBlockOptin      = 227 << 10;
    p->sharedMemPerMultiprocessor  = 228 << 10;
    p->regsPerBlock                = 65536;
    p->regsPerMultiprocessor       = 65536;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t * free, size_t * total) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    *total = rt().total;
    *free  = rt().total - rt().used[device];
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { const cudaError_t e = last; last = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }

const char * cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaSuccess:                      return "no error";
        case cudaErrorMemoryAllocation:        return "out of memory";
        case cudaErrorNoDevice:                return "no device";
        case cudaErrorInvalidValue:            return "invalid value";
        case cudaErrorStreamCaptureUnsupported: return "not while a stream is captured";
        case cudaErrorStreamCaptureIsolation:  return "a captured stream and another one waited for each other";
        default:                               return "an error";
    }
}

//
// memory
//

cudaError_t cudaMalloc(void ** p, size_t bytes) { return alloc(p, bytes, true); }
cudaError_t cudaMallocManaged(void ** p, size_t bytes, unsigned int) { return alloc(p, bytes, true); }
cudaError_t cudaMallocHost(void ** p, size_t bytes) { return alloc(p, bytes, false); }
cudaError_t cudaHostAlloc(void ** p, size_t bytes, unsigned int) { return alloc(p, bytes, false); }
cudaError_t cudaFree(void * p) { return give_back(p); }
cudaError_t cudaFreeHost(void * p) { return give_back(p); }
cudaError_t cudaHostRegister(void *, size_t, unsigned int) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void *) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void ** to, void * p, unsigned int) { *to = p; return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void * dst, const void * src, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    return give(s, seconds_of(bytes, kind), [=] {
        memmove(dst, src, bytes);
        rt().add(direction(kind), bytes);
    });
}

cudaError_t cudaMemcpy2DAsync(void * dst, size_t dpitch, const void * src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    if (width > dpitch || width > spitch) {
        return said(cudaErrorInvalidValue);
    }
    return give(s, seconds_of(width*height, kind), [=] {
        for (size_t i = 0; i < height; ++i) {
            memmove((char *) dst + i*dpitch, (const char *) src + i*spitch, width);
        }
        rt().add(direction(kind), width*height);
    });
}

cudaError_t cudaMemcpyPeerAsync(void * dst, int, const void * src, int, size_t bytes, cudaStream_t s) {
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, s);
}

cudaError_t cudaMemset(void * p, int value, size_t bytes) { memset(p, value, bytes); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void * p, int value, size_t bytes, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> lock(rt().mutex);
    return give(s, 0, [=] { memset(p, value, bytes); });
}

//
// kernels
//

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes * a, const void *) {
    memset(a, 0, sizeof(*a));
    a->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int * n, const void *, int, size_t, unsigned int) { *n = 1; return cudaSuccess; }
cudaError_t cudaLaunchCooperativeKernel(const void * f, dim3, dim3, void **, size_t, cudaStream_t s) { return launch(f, s); }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t * config, const void * f, void **) { return launch(f, config->stream); }
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void **, size_t, cudaStream_t s) { return launch((const void *) kernel, s); }
cudaError_t __cudaGetKernel(cudaKernel_t * kernel, const void * f) { *kernel = (cudaKernel_t) f; return cudaSuccess; }

// What "<<<>>>" leaves for the stub behind it.
static thread_local struct { dim3 grid, block; size_t shared; void * stream; } call;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void * stream) {
    call = { grid, block, shared, stream };
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 * grid, dim3 * block, size_t * shared, void * stream) {
    *grid   = call.grid;
    *block  = call.block;
    *shared = call.shared;
    *(void **) stream = call.stream;
    return cudaSuccess;
}

void ** __cudaRegisterFatBinary(void *) { static void * handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
void __cudaRegisterFunction(void **, const char * f, char *, const char * name, int, void *, void *, void *, void *, int *) {
    rt().kernels[f] = name;
}

} // extern "C"
