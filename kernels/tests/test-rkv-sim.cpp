// The simulated device's memory: the host reaches it through copies alone, and a stray access ends the program that made it.
//
// Usage: ROLLING_KV_SIM=mem=64MiB test-rkv-sim

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <csignal>
#include <cstdio>
#include <functional>
#include <numeric>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static int n_passed = 0;
static int n_failed = 0;

static void expect(bool holds, const char * what) {
    printf("%s: %s\n", what, holds ? "ok" : "FAILED");
    (holds ? n_passed : n_failed)++;
}

// Whether a child that does this is ended by a fault of memory.
static bool faults(const std::function<void()> & access) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit no_core = { 0, 0 };
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        access();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

int main() {
    ggml_backend_load_all();
    ggml_backend_dev_t dev = ggml_backend_dev_by_name("SIM0");
    if (!dev) {
        fprintf(stderr, "there is no simulated device; set ROLLING_KV_SIM, for example to mem=64MiB\n");
        return 2;
    }

    ggml_init_params params = {};
    params.mem_size = 4*ggml_tensor_overhead();
    params.no_alloc = true;
    ggml_context_ptr ctx(ggml_init(params));
    ggml_tensor *    t = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, 1024);
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), ggml_backend_dev_buffer_type(dev)));
    if (!buffer) {
        fprintf(stderr, "the device has no memory for one tensor\n");
        return 2;
    }

    std::vector<float> sent(1024);
    std::iota(sent.begin(), sent.end(), 1.0f);
    std::vector<float> back(1024);
    ggml_backend_tensor_set(t, sent.data(), 0, ggml_nbytes(t));
    ggml_backend_tensor_get(t, back.data(), 0, ggml_nbytes(t));
    expect(back == sent, "what is copied to the device comes back");
    expect(!ggml_backend_buffer_is_host(buffer.get()), "the device's memory is not the host's");

    volatile float * at = (volatile float *) t->data;
    expect(faults([&] { (void) at[7]; }), "a stray read by the host is caught");
    expect(faults([&] { at[7] = 0.0f; }), "a stray write by the host is caught");
    expect(!faults([&] { (void) *(volatile float *) back.data(); }), "a read of the host's own memory is not");

    ggml_backend_tensor_get(t, back.data(), 0, ggml_nbytes(t));
    expect(back == sent, "the bytes are as they were");

    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
