#include "rkv-cuda-buffer.h"

#include "rkv-cuda.h"
#include "rkv-cuda-vendors.h"

#include "common.cuh"
#include "ggml-backend-impl.h"
#include "ggml-cuda.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

rkv_cuda_counts & rkv_cuda_counts_of(int device) {
    static rkv_cuda_counts counts[GGML_CUDA_MAX_DEVICES];
    GGML_ASSERT(device >= 0 && device < GGML_CUDA_MAX_DEVICES);
    return counts[device];
}

namespace {

// A larger tail is several buffers.
constexpr size_t BUFFER_MAX = size_t(4) << 30;
constexpr size_t ALIGNMENT  = 256;

int device_of(ggml_backend_buffer_type_t buft) {
    return int((intptr_t) buft->context);
}

void wrote(ggml_backend_buffer_t buffer) {
    rkv_cuda_counts_of(device_of(buffer->buft)).tail_writes++;
}

// Copies that ran ahead for a step that never came may still read it.
void free_buffer(ggml_backend_buffer_t buffer) {
    ggml_cuda_set_device(device_of(buffer->buft));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFreeHost(buffer->context));
}

void * get_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    memset((char *) t->data + offset, value, size);
    wrote(buffer);
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    memcpy((char *) t->data + offset, data, size);
    wrote(buffer);
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, (const char *) t->data + offset, size);
}

bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    if (!ggml_backend_buffer_is_host(src->buffer)) {
        return false;
    }
    memcpy(dst->data, src->data, ggml_nbytes(src));
    wrote(buffer);
    return true;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(buffer->context, value, buffer->size);
    wrote(buffer);
}

const ggml_backend_buffer_i BUFFER = {
    /* .free_buffer   = */ free_buffer,
    /* .get_base      = */ get_base,
    /* .init_tensor   = */ nullptr,
    /* .memset_tensor = */ memset_tensor,
    /* .set_tensor    = */ set_tensor,
    /* .get_tensor    = */ get_tensor,
    /* .set_tensor_2d = */ nullptr,
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ cpy_tensor,
    /* .clear         = */ clear,
    /* .reset         = */ nullptr,
};

// Of each device its own: a cache tells kinds of memory apart by their names.
const char * type_name(ggml_backend_buffer_type_t buft) {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (int i = 0; i < GGML_CUDA_MAX_DEVICES; ++i) {
            all.push_back(GGML_CUDA_NAME + std::to_string(i) + "_Tail");
        }
        return all;
    }();
    return names[device_of(buft)].c_str();
}

// There is no fallback to memory that is not pinned: the device's kernels write new rows there, and copies from it would be slow and
// would hold up the host.
ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    if (getenv("GGML_CUDA_NO_PINNED") != nullptr) {
        GGML_LOG_ERROR("rolling-kv: a tail needs pinned host memory, which GGML_CUDA_NO_PINNED forbids; next: unset it, or drop the window\n");
        return nullptr;
    }
    ggml_cuda_set_device(device_of(buft));
    void *            p   = nullptr;
    const cudaError_t err = cudaHostAlloc(&p, size ? size : ALIGNMENT, cudaHostAllocPortable | cudaHostAllocMapped);
    if (err != cudaSuccess) {
        (void) cudaGetLastError(); // it is told here
        GGML_LOG_ERROR("rolling-kv: failed to allocate %.2f MiB of pinned host memory for a tail: %s; next: make the context smaller, the window larger, "
                       "or raise the limit of locked memory\n", size/1024.0/1024.0, cudaGetErrorString(err));
        return nullptr;
    }
    void * seen = nullptr;
    if (cudaHostGetDevicePointer(&seen, p, 0) != cudaSuccess || seen != p) {
        (void) cudaGetLastError();
        CUDA_CHECK(cudaFreeHost(p));
        GGML_LOG_ERROR("rolling-kv: this device does not reach pinned host memory by the host's addresses; next: drop the window\n");
        return nullptr;
    }
    return ggml_backend_buffer_init(buft, BUFFER, p, size);
}

size_t get_alignment(ggml_backend_buffer_type_t) {
    return ALIGNMENT;
}

size_t get_max_size(ggml_backend_buffer_type_t) {
    return BUFFER_MAX;
}

bool is_host(ggml_backend_buffer_type_t) {
    return true;
}

} // namespace

ggml_backend_buffer_type_t rkv_cuda_tail_buffer_type(ggml_backend_dev_t dev) {
    static ggml_backend_buffer_type types[GGML_CUDA_MAX_DEVICES];
    static std::once_flag           once;
    std::call_once(once, [] {
        for (int i = 0; i < ggml_backend_cuda_get_device_count(); ++i) {
            types[i] = {
                /* .iface   = */ { type_name, alloc_buffer, get_alignment, get_max_size, nullptr, is_host },
                /* .device  = */ ggml_backend_reg_dev_get(ggml_backend_cuda_reg(), i),
                /* .context = */ (void *) (intptr_t) i,
            };
        }
    });
    for (int i = 0; i < ggml_backend_cuda_get_device_count(); ++i) {
        if (types[i].device == dev) {
            return &types[i];
        }
    }
    GGML_ABORT("rolling-kv: a tail was asked for of a device that is none of this backend's");
}

bool rkv_cuda_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft->iface.get_name == type_name && buft->device == dev;
}

bool rkv_cuda_in_tail(int device, const ggml_tensor * t) {
    const ggml_tensor * base = t->view_src ? t->view_src : t;
    return base->buffer && base->buffer->buft->iface.get_name == type_name && device_of(base->buffer->buft) == device;
}
