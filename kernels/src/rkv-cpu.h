#pragma once

// What the patched CPU backend calls. Plain C, because ggml-cpu.c includes it.

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

struct ggml_compute_params;

#ifdef __cplusplus
extern "C" {
#endif

// Runs a tiled attention node. False when the node is not tiled: stock's code runs then.
bool rkv_cpu_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// Bytes of work memory that a tiled attention node needs with `n_tasks` threads; 0 when it is not tiled.
size_t rkv_cpu_flash_attn_work_size(const struct ggml_tensor * node, int n_tasks);

// Runs a SET_ROWS node of two parts. False when the node has one part: stock's code runs then.
bool rkv_cpu_set_rows(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// Runs a marked ROPE node. False when the node has no mark: stock's code runs then.
bool rkv_cpu_rope(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// The function or mark that the backend's registry has under a name of ours, or NULL.
void * rkv_cpu_proc(const char * name);

#ifdef __cplusplus
}
#endif
