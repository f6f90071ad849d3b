#pragma once

// What ggml-base was built from: "llama.cpp <commit>, patches <hash>, kernels <hash>". A module that is loaded into it must be of the same.

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// Static, never NULL.
GGML_API const char * rkv_built_from(void);

#ifdef __cplusplus
}
#endif
