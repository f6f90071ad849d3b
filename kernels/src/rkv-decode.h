#pragma once

// Decoding with a window from a program that catches nothing.

#include "llama.h"

#include <cstdint>

// Decodes a batch of a context that has a residency; what is thrown on the way is logged and answered as llama.cpp answers a failed
// computation. False, and nothing is done, for other contexts and where the caller of this thread catches for itself.
bool rkv_decode(llama_context & ctx, const llama_batch & batch, int32_t & answer);
