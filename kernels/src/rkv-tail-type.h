#pragma once

// Tails whose rows have a lower type than the window's.

#include "ggml.h"

#include <cstddef>

struct llama_context_params;
struct llama_model;
struct rkv_residency;
class llama_io_read_i;
class llama_io_write_i;

// Whether a tail may have rows of this type.
bool rkv_tail_type_known(ggml_type type);

// Checks the types that were asked for and notes them in the residency. Throws std::runtime_error with what is wrong and what to do.
void rkv_tail_type_resolve(rkv_residency & residency, const llama_model & model, const llama_context_params & params);

// A state holds the window's type. Rows [row, row + n) of the tail are converted to it, or from it; what is read back is off by the
// rounding of both types, once.
void rkv_tail_rows_write(llama_io_write_i & io, const ggml_tensor * tail, ggml_type type, size_t row, size_t n);
void rkv_tail_rows_read(llama_io_read_i & io, ggml_tensor * tail, ggml_type type, size_t row, size_t n);
