#pragma once

// What ggml-cuda.cu asks. Each call is one added line there.

#include "ggml-backend.h"
#include "ggml.h"

#include <stddef.h>

struct ggml_backend_cuda_context;
struct ggml_cgraph;

// Before a graph is computed: plans which tiles of its tails are brought, and gives the first copies. False when there is no memory for
// the slots. Nothing for a piece of one.
bool rkv_cuda_begin(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph);

// When every node of it was given to the device's streams.
void rkv_cuda_end(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph);

// Computes a node that is tiled, or is written in two parts. False: it is neither.
bool rkv_cuda_forward(ggml_backend_cuda_context & ctx, ggml_tensor * node);

// Gives a step that reads a tail in pieces, by the function that computes a graph. False: the graph is to be computed as it is.
typedef ggml_status (*rkv_cuda_compute_fn)(ggml_backend_t backend, ggml_cgraph * graph);
bool rkv_cuda_in_pieces(ggml_backend_t backend, ggml_cgraph * graph, rkv_cuda_compute_fn compute, ggml_status & status);

// Whether a graph may be captured once and launched again. One that reads a tail may not.
bool rkv_cuda_can_capture(const ggml_cgraph * graph);

// Whether a node is attention over a tail.
bool rkv_cuda_reads_tail(const ggml_tensor * node);

// Whether upstream may write these rows from the node that makes them.
bool rkv_cuda_can_fuse(const ggml_tensor * set_rows);

// Bytes that a tiled node takes, with what it computes in; 0: not tiled.
size_t rkv_cuda_alloc_size(int device, const ggml_tensor * node);

// Whether the device computes a node that is tiled or is written in two parts: 1 yes, 0 no; -1: it is neither.
int rkv_cuda_supports_op(int device, const ggml_tensor * node);

// Host memory of this device's tails.
bool rkv_cuda_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft);

// Functions of the registry, by name; NULL: not ours.
void * rkv_cuda_proc(const char * name);

// What belongs to a context goes with it.
void rkv_cuda_free(ggml_backend_cuda_context & ctx);
