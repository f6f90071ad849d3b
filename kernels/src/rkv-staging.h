#pragma once

// Devices that bring the tail's tiles to their own memory.

#include "rkv-residency.h"

#include "ggml-backend.h"

#include <vector>

// Host memory for the tail of a layer that this device computes: what the device itself names, so that the scheduler neither
// copies it nor moves the node; else ordinary memory.
ggml_backend_buffer_type_t rkv_tail_buffer_type(ggml_backend_dev_t dev);

// Tells the backends of a context how to stage tiles, those that do.
void rkv_staging_set(const std::vector<ggml_backend_t> & backends, const rkv_attn_config & config);
