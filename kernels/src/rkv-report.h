#pragma once

// What a context's caches hold, where, and what attention did with it.

#include "rkv-residency.h"

#include "ggml-backend.h"
#include "rkv-backend.h"

#include <vector>

class llama_kv_cache;
struct llama_memory_i;

// True for the kinds of memory whose split is known to every function that touches them.
bool rkv_memory_is_known(const llama_memory_i * memory);

// The caches of a memory that may be split, in the order base, sliding.
std::vector<llama_kv_cache *> rkv_memory_caches(const llama_memory_i * memory);

// Logs the one line that says what is active.
void rkv_residency_log(const rkv_residency & residency, const llama_memory_i * memory);
