#pragma once

// The CPU backend of this build, which is a module loaded at run time: what it does beyond ggml's interface is asked by name.

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <cstdio>
#include <cstdlib>

// The variant of that file, or else the one that suits this machine best.
inline ggml_backend_t test_cpu_init(const char * module = nullptr) {
    if (!module) {
        ggml_backend_load_all();
    } else if (!ggml_backend_load(module)) {
        fprintf(stderr, "%s: not a CPU backend that this machine can run\n", module);
        exit(2);
    }
    ggml_backend_t backend = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    if (!backend) {
        fprintf(stderr, "there is no CPU backend beside this program\n");
        exit(2);
    }
    return backend;
}

inline void test_cpu_set_threads(ggml_backend_t backend, int n_threads) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    auto set = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    set(backend, n_threads);
}
