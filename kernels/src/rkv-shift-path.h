#pragma once

// Where the tail's K is turned: on the host, where it lies, or by the device, which reads and writes it over its link.

#include "rkv-params.h"

#include "ggml.h"

#include <cstdint>

class llama_context;

struct rkv_shift_work {
    uint64_t  bytes = 0; // rows of tails that a device's layers own
    uint64_t  nodes = 0; // parts of layers
    ggml_type type  = GGML_TYPE_F16;
};

// What was asked for, or what is reckoned to be faster: bytes over the rate of the host's kernel, measured once a process, against twice
// the bytes over the link as the device measured it.
rkv_shift_path rkv_shift_path_choose(llama_context * lctx, const rkv_shift_work & work);

// Bytes of K per second that `n_threads` threads of the host turn. 0 when it cannot be measured.
double rkv_host_turn_rate(ggml_type type, int n_threads);
