#pragma once

// Pinned host memory that holds tails, a kind of buffer for each device.

#include "rkv-step.h"

#include "ggml-backend.h"

#include <atomic>
#include <cstdint>

// What is counted of one device.
struct rkv_cuda_counts {
    std::atomic<uint64_t> tail_writes{ 0 };      // times that a tail was changed by anything but a step's new rows
    std::atomic<uint64_t> bytes_to_device{ 0 };  // of tiles
    std::atomic<uint64_t> copies_to_device{ 0 };
    std::atomic<void *>   first_slots{ nullptr }; // of the oldest ring; for RKV_FAULT_RING_OWNER
};

rkv_cuda_counts & rkv_cuda_counts_of(int device);

ggml_backend_buffer_type_t rkv_cuda_tail_buffer_type(ggml_backend_dev_t dev);

// Whether a tensor's bytes lie in a tail of this device.
bool rkv_cuda_in_tail(int device, const ggml_tensor * t);
