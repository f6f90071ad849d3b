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

#ifdef __cplusplus
}
#endif
