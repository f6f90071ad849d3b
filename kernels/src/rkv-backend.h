#pragma once

// Which backends can run the nodes that rolling-kv adds parts to. Asked of the backend that would execute, never of a buffer's device.

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Name under which a backend registry tells (through get_proc_address) that its devices run tiled attention and split writes.
#define RKV_TILED_PROC "rkv_tiled"

// True when `dev` may be asked about `op` at all: it is an ordinary node, or the device knows tails and tiles.
GGML_API bool rkv_dev_accepts(ggml_backend_dev_t dev, const struct ggml_tensor * op);

// True when the device runs tiled attention and split writes.
GGML_API bool rkv_dev_is_tiled(ggml_backend_dev_t dev);

#ifdef __cplusplus
}
#endif
