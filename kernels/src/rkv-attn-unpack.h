#pragma once

// Rows of K and V as floats.

#include "ggml.h"

namespace rkv {

// Writes the n elements of a row. n is a whole number of the type's blocks.
typedef void (*unpack_fn)(const void * row, float * out, int64_t n);

// Never NULL; aborts on a type that cannot be read as floats.
unpack_fn unpack_for(ggml_type type);

} // namespace rkv
