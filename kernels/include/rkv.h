#pragma once

// rolling-kv: the C interface of what this project adds to llama.cpp.
//
// Conventions: functions are `rkv_<thing>_<verb>`; integers have a size; nothing is thrown across this boundary.

#include "llama.h"
#include "rkv-attn-node.h"
#include "rkv-locality-api.h"
#include "rkv-params.h"
#include "rkv-residency-api.h"
#include "rkv-rope-api.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Version of this interface. The Rust crate refuses to load a library that answers another number.
#define RKV_ABI_VERSION 1

// Defined only in a patched libllama: the Rust crate references it, so a stock library cannot be linked by mistake.
// Returns RKV_ABI_VERSION.
LLAMA_API uint32_t rkv_abi_v1(void);

// What this library was built from: "llama.cpp <commit>, patches <hash>, kernels <hash>". Static, never NULL.
LLAMA_API const char * rkv_build_stamp(void);

#ifdef __cplusplus
}
#endif
