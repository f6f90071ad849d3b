#pragma once

// What a program can ask the module of the simulated device for, beyond ggml's interface.

#include "ggml-backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Sets the specification before the module is registered; the environment variable ROLLING_KV_SIM does the same. False, with a
// reason in `why`, when it cannot be read or when another one is in force.
GGML_BACKEND_API bool rkv_sim_configure(const char * spec, char * why, size_t n_why);

struct rkv_sim_totals {
    uint64_t bytes_to_device;
    uint64_t bytes_to_host;
    uint64_t transfers_to_device;
    uint64_t transfers_to_host;
    uint64_t link_busy_ns; // time that transfers to the device took, by the set bandwidth
    uint64_t mem_used;     // bytes of device memory
};

// Name of a function of the registry: void (ggml_backend_dev_t, struct rkv_sim_totals *)
#define RKV_SIM_TOTALS_PROC "rkv_sim_totals"

#ifdef __cplusplus
}
#endif
