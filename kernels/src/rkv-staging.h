#pragma once

// Devices that bring the tail's tiles to their own memory.

#include "rkv-residency.h"

#include "ggml-backend.h"

#include <vector>

struct llama_memory_i;
struct llama_model;

// Host memory for the tail of a layer that this device computes: what the device itself names, so that the scheduler neither
// copies it nor moves the node; else ordinary memory.
ggml_backend_buffer_type_t rkv_tail_buffer_type(ggml_backend_dev_t dev);

// Whether the device puts a layer's tail next to its window for a long batch.
bool rkv_dev_gathers(ggml_backend_dev_t dev);

// Tells the backends of a context how to stage tiles, those that do, and makes them take the memory for it. Throws with the device
// when there is none; logs what each chose.
void rkv_staging_set(const std::vector<ggml_backend_t> & backends, const llama_model & model, const rkv_attn_config & config,
        const llama_memory_i * memory);
