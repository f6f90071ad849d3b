#include "sim-device.h"

#include "ggml-impl.h"

#include <cstdlib>
#include <cstring>

namespace rkv_sim {

namespace {

device & owner(ggml_backend_buffer_t buffer) {
    return *device_of(buffer->buft->device);
}

const ggml_tensor * base_of(const ggml_tensor * t) {
    return t->view_src ? t->view_src : t;
}

//
// device memory
//

void device_free(ggml_backend_buffer_t buffer) {
    owner(buffer).mem.free(buffer->context);
}

void * device_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

void device_memset(ggml_backend_buffer_t buffer, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    memset((char *) owner(buffer).mem.bytes_of(t->data) + offset, value, size);
}

void device_set(ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    device & d = owner(buffer);
    d.to_device.transfer(size, [&] { memcpy((char *) d.mem.bytes_of(t->data) + offset, data, size); });
}

void device_get(ggml_backend_buffer_t buffer, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    device & d = owner(buffer);
    d.to_host.transfer(size, [&] { memcpy(data, (const char *) d.mem.bytes_of(t->data) + offset, size); });
}

bool device_copy(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    device & d = owner(buffer);
    if (!in_device_memory(d, src)) {
        return false;
    }
    memcpy(d.mem.bytes_of(dst->data), d.mem.bytes_of(src->data), ggml_nbytes(src));
    return true;
}

void device_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(owner(buffer).mem.bytes_of(buffer->context), value, buffer->size);
}

const ggml_backend_buffer_i DEVICE_BUFFER = {
    /* .free_buffer   = */ device_free,
    /* .get_base      = */ device_base,
    /* .init_tensor   = */ nullptr,
    /* .memset_tensor = */ device_memset,
    /* .set_tensor    = */ device_set,
    /* .get_tensor    = */ device_get,
    /* .set_tensor_2d = */ nullptr,
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ device_copy,
    /* .clear         = */ device_clear,
    /* .reset         = */ nullptr,
};

const char * device_type_name(ggml_backend_buffer_type_t buft) {
    return device_of(buft->device)->name.c_str();
}

ggml_backend_buffer_t device_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    device & d = *device_of(buft->device);
    void * address = d.mem.fails() ? nullptr : d.mem.alloc(size);
    if (!address) {
        GGML_LOG_ERROR("%s: allocating %.2f MiB failed: out of device memory (%.2f of %.2f MiB are in use)\n", d.name.c_str(),
                size/1048576.0, d.mem.used()/1048576.0, d.mem.total()/1048576.0);
        return nullptr;
    }
    return ggml_backend_buffer_init(buft, DEVICE_BUFFER, address, size);
}

size_t device_alignment(ggml_backend_buffer_type_t) {
    return memory::ALIGNMENT;
}

//
// pinned host memory
//

constexpr size_t HOST_ALIGNMENT = 4096;

void wrote(ggml_backend_buffer_t buffer) {
    if (buffer->buft == &owner(buffer).buft_tail) {
        owner(buffer).tail_writes++;
    }
}

void host_free(ggml_backend_buffer_t buffer) {
    free(buffer->context);
}

void * host_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

void host_memset(ggml_backend_buffer_t buffer, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    memset((char *) t->data + offset, value, size);
    wrote(buffer);
}

void host_set(ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    memcpy((char *) t->data + offset, data, size);
    wrote(buffer);
}

void host_get(ggml_backend_buffer_t, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, (const char *) t->data + offset, size);
}

bool host_copy(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    device & d = owner(buffer);
    if (in_device_memory(d, src)) {
        const size_t size = ggml_nbytes(src);
        d.to_host.transfer(size, [&] { memcpy(dst->data, d.mem.bytes_of(src->data), size); });
    } else if (ggml_backend_buffer_is_host(base_of(src)->buffer)) {
        memcpy(dst->data, src->data, ggml_nbytes(src));
    } else {
        return false;
    }
    wrote(buffer);
    return true;
}

void host_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(buffer->context, value, buffer->size);
    wrote(buffer);
}

const ggml_backend_buffer_i HOST_BUFFER = {
    /* .free_buffer   = */ host_free,
    /* .get_base      = */ host_base,
    /* .init_tensor   = */ nullptr,
    /* .memset_tensor = */ host_memset,
    /* .set_tensor    = */ host_set,
    /* .get_tensor    = */ host_get,
    /* .set_tensor_2d = */ nullptr,
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ host_copy,
    /* .clear         = */ host_clear,
    /* .reset         = */ nullptr,
};

const char * host_type_name(ggml_backend_buffer_type_t) {
    return "SIM_Host";
}

const char * tail_type_name(ggml_backend_buffer_type_t) {
    return "SIM_Tail";
}

ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    device & d = *device_of(buft->device);
    const size_t rounded = (size + HOST_ALIGNMENT - 1)/HOST_ALIGNMENT*HOST_ALIGNMENT;
    void * p = d.mem.fails() ? nullptr : aligned_alloc(HOST_ALIGNMENT, rounded ? rounded : HOST_ALIGNMENT);
    if (!p) {
        GGML_LOG_ERROR("%s: allocating %.2f MiB of pinned host memory failed\n", d.name.c_str(), size/1048576.0);
        return nullptr;
    }
    return ggml_backend_buffer_init(buft, HOST_BUFFER, p, size);
}

size_t host_alignment(ggml_backend_buffer_type_t) {
    return memory::ALIGNMENT;
}

bool host_is_host(ggml_backend_buffer_type_t) {
    return true;
}

} // namespace

bool in_device_memory(const device & d, const ggml_tensor * t) {
    return t->data && d.mem.holds(t->data);
}

bool in_tail_memory(const device & d, const ggml_tensor * t) {
    const ggml_tensor * base = base_of(t);
    return base->buffer && base->buffer->buft == &d.buft_tail;
}

void * bytes_of(const device & d, const ggml_tensor * t) {
    return in_device_memory(d, t) ? d.mem.bytes_of(t->data) : t->data;
}

void init_buffer_types(device & d) {
    d.buft_device = {
        /* .iface   = */ { device_type_name, device_alloc, device_alignment, nullptr, nullptr, nullptr },
        /* .device  = */ &d.dev,
        /* .context = */ nullptr,
    };
    d.buft_host = {
        /* .iface   = */ { host_type_name, host_alloc, host_alignment, nullptr, nullptr, host_is_host },
        /* .device  = */ &d.dev,
        /* .context = */ nullptr,
    };
    d.buft_tail = d.buft_host;
    d.buft_tail.iface.get_name = tail_type_name;
}

} // namespace rkv_sim
