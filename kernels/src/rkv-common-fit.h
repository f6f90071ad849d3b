#pragma once

// What --fit of llama.cpp's programs must know of a window: it takes what is left, so nothing needs to be shrunk for it.

#include <cstddef>
#include <cstdint>
#include <vector>

struct llama_context_params;
struct llama_device_memory_data;

// Before anything is measured. Says that the context stays as long as it is when the cache has a window: cells that do not fit the device
// lie in host memory.
void rkv_fit_begin(const llama_context_params & cparams, uint32_t & n_ctx_min);

// Once memory was measured, with the least window: an automatic window leaves free what the fit wants to be, working memory, and a
// draft's. `margins`: [devices]; `extra`: memory of the draft, or empty. Also makes an automatic context as long as host memory holds.
void rkv_fit_reserve(llama_context_params & cparams, const std::vector<llama_device_memory_data> & memory,
        const std::vector<llama_device_memory_data> & extra, const size_t * margins, bool n_ctx_auto);
