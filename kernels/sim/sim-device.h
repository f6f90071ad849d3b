#pragma once

// One simulated device: its memory, its link, and its kinds of buffers.

#include "sim-clock.h"
#include "sim-config.h"
#include "sim-link.h"
#include "sim-memory.h"

#include "rkv-plan.h"

#include "ggml-backend-impl.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace rkv_sim {

struct device {
    device(const config & cfg, uint32_t index, ggml_backend_reg_t reg);

    config      cfg;
    std::string name;
    std::string text;
    costs       cost;
    memory      mem;
    link        to_device;
    link        to_host;

    // The link to the device as transfers of a few MiB show it; measured once.
    rkv::link_speed measured_link();

    // Grows whenever memory of a tail is written through its buffer.
    std::atomic<uint64_t> tail_writes{ 0 };
    std::atomic<uint32_t> n_backend{ 0 };
    std::atomic<void *>   first_slots{ nullptr }; // of the oldest ring; for RKV_FAULT_RING_OWNER

    std::once_flag           measure_once;
    rkv::link_speed          measured;

    ggml_backend_device      dev{};
    ggml_backend_buffer_type buft_device{};
    ggml_backend_buffer_type buft_host{}; // pinned, to copy to and from
    ggml_backend_buffer_type buft_tail{}; // pinned, and read by the device: it holds tails
};

inline device * device_of(ggml_backend_dev_t dev) { return (device *) dev->context; }

void init_buffer_types(device & d);

// Whether a tensor's bytes lie in this device's memory, or in host memory that holds tails.
bool in_device_memory(const device & d, const ggml_tensor * t);
bool in_tail_memory(const device & d, const ggml_tensor * t);

// Where the device computes with a tensor's bytes.
void * bytes_of(const device & d, const ggml_tensor * t);

ggml_backend_t init_backend(device & d);

// The backend of the CPU that does the arithmetic; NULL when there is none.
ggml_backend_dev_t cpu_device();

} // namespace rkv_sim
