#pragma once

// rolling-kv: one measurement of a machine at a time. Who calls decides how often, and what to make of it. Part of rkv-bindgen.h.

#include "ggml-backend.h"
#include "llama.h"

#include "rkv-shim.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rkv_probe;

enum rkv_probe_kind {
    RKV_PROBE_TO_DEVICE_PINNED   = 0, // size: bytes
    RKV_PROBE_TO_DEVICE_PAGEABLE = 1,
    RKV_PROBE_TO_HOST_PINNED     = 2,
    RKV_PROBE_TO_HOST_PAGEABLE   = 3,
    RKV_PROBE_DEVICE_NODES       = 4, // size: nodes that hardly compute
    RKV_PROBE_DEVICE_READ        = 5, // size: bytes of a matrix that is multiplied with a vector
    RKV_PROBE_DEVICE_MATRIX      = 6, // size: products of a matrix with a batch
    RKV_PROBE_DEVICE_ATTENTION   = 7, // size: cells of f16
    RKV_PROBE_HOST_READ          = 8, // size: bytes
    RKV_PROBE_HOST_KERNEL        = 9, // size: cells of `type`
};

// What one run took. `amount` is in the unit of its kind: bytes, nodes, or operations.
struct rkv_probe_run {
    double seconds;
    double amount;
    bool   reckoned; // the device's own time, not the time of day
};

// Of a device, or of the host alone where it is NULL. `n_threads` are the host's.
LLAMA_API enum rkv_status rkv_probe_new(ggml_backend_dev_t dev, int32_t n_threads, struct rkv_probe ** out);
LLAMA_API void            rkv_probe_free(struct rkv_probe * probe);

// Measures once. What it needs is kept for the next run of the same kind, size and type. `amount` is 0 where the device has nothing to
// measure, such as pinned memory.
LLAMA_API enum rkv_status rkv_probe_run_once(struct rkv_probe * probe, enum rkv_probe_kind kind, uint64_t size, enum ggml_type type, struct rkv_probe_run * out);

#ifdef __cplusplus
}
#endif
