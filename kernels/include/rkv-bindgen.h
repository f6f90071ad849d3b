#pragma once

// Everything that Rust may call. Only what the linked libraries (llama, ggml, ggml-base) export belongs here: a backend
// module such as ggml-cpu is loaded at run time.

#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "gguf.h"
#include "llama.h"

#include "rkv.h"
#include "rkv-planner-api.h"
#include "rkv-probe-api.h"
#include "rkv-ring-api.h"
#include "rkv-shim.h"
