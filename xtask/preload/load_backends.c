// Preloaded into upstream's tests.
//
// test-llama-archs is written for backends that are linked in: without their modules loaded it finds no device, runs
// nothing and reports success. And it asks for four threads; where there are fewer cores, threads that wait for each other
// by spinning take minutes for what takes seconds.

#define _GNU_SOURCE

#include "llama.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct llama_context * (*init_from_model)(struct llama_model * model, struct llama_context_params params);

__attribute__((constructor)) static void load_backends(void) {
    ggml_backend_load_all();
}

static int32_t at_most(int32_t n_threads, long n_cores) {
    return n_cores > 0 && n_threads > n_cores ? (int32_t) n_cores : n_threads;
}

struct llama_context * llama_init_from_model(struct llama_model * model, struct llama_context_params params) {
    const init_from_model init = (init_from_model) dlsym(RTLD_NEXT, "llama_init_from_model");
    if (init == NULL) {
        abort();
    }

    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    params.n_threads       = at_most(params.n_threads,       n_cores);
    params.n_threads_batch = at_most(params.n_threads_batch, n_cores);

    return init(model, params);
}
