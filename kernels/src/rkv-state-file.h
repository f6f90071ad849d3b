#pragma once

// Seals of a sequence's state file: what lets a damaged one, a cut one and one of another model be refused before anything is
// changed. A seal stands behind everything that llama.cpp writes, where an unpatched one does not look.

#include <cstddef>
#include <string>

struct llama_context;

// Seals a file of `n_bytes` that was written; 0 is a file that could not be. Returns `n_bytes`, or 0 when the seal cannot be written.
size_t rkv_state_file_seal(llama_context & ctx, const char * path, size_t n_bytes);

// Whether a file may be restored; logs why not. One without a seal may, unless the context has a residency.
bool rkv_state_file_is_sound(llama_context & ctx, const char * path);
