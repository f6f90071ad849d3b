#include "rkv-probe.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace rkv {

namespace {

class copy_trial : public trial {
public:
    copy_trial(const timed_backend & device, uint64_t bytes, bool to_device, bool pinned) : device(device), to_device(to_device) {
        ggml_init_params params = {};
        params.mem_size = ggml_tensor_overhead();
        params.no_alloc = true;
        ctx.reset(ggml_init(params));
        t = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I8, int64_t(bytes));
        on_device.reset(ggml_backend_alloc_ctx_tensors(ctx.get(), device.get()));
        if (!on_device) {
            throw std::runtime_error("there is no device memory for the copy that is to be measured");
        }
        ggml_backend_dev_t         dev  = ggml_backend_get_device(device.get());
        ggml_backend_buffer_type_t buft = pinned ? ggml_backend_dev_host_buffer_type(dev) : nullptr;
        if (pinned && !buft) {
            return;
        }
        if (buft) {
            of_device.reset(ggml_backend_buft_alloc_buffer(buft, bytes));
            host = of_device ? ggml_backend_buffer_get_base(of_device.get()) : nullptr;
        } else {
            own.resize(bytes);
            host = own.data();
        }
        if (host) {
            memset(host, 1, bytes);
            amount = double(bytes);
        }
    }

    void run() override {
        if (!host) {
            return;
        }
        if (to_device) {
            ggml_backend_tensor_set_async(device.get(), t, host, 0, ggml_nbytes(t));
        } else {
            ggml_backend_tensor_get_async(device.get(), t, host, 0, ggml_nbytes(t));
        }
    }

private:
    const timed_backend &   device;
    const bool              to_device;
    ggml_context_ptr        ctx;
    ggml_tensor *           t = nullptr;
    ggml_backend_buffer_ptr on_device;
    ggml_backend_buffer_ptr of_device; // pinned host memory
    std::vector<char>       own;
    void *                  host = nullptr;
};

// Each thread reads a share of its own, as often as it takes to be longer than starting it.
class read_trial : public trial {
public:
    read_trial(uint64_t bytes, int n_threads) : words(bytes/sizeof(uint64_t)/UNROLL*UNROLL), n_threads(n_threads) {
        memory.reset((uint64_t *) aligned_alloc(PAGE, (words*sizeof(uint64_t) + PAGE - 1)/PAGE*PAGE));
        if (!memory) {
            throw std::runtime_error("there is no host memory for the reads that are to be measured");
        }
#if defined(__linux__)
        madvise(memory.get(), words*sizeof(uint64_t), MADV_HUGEPAGE);
#endif
        // Each thread touches what it will read, so that the pages lie near it.
        each([&](uint64_t from, uint64_t to) { memset(memory.get() + from, 1, (to - from)*sizeof(uint64_t)); });
        amount = double(words*sizeof(uint64_t))*PASSES;
    }

    void run() override {
        each([&](uint64_t from, uint64_t to) {
            uint64_t sum[UNROLL] = {};
            for (int pass = 0; pass < PASSES; ++pass) {
                for (uint64_t i = from; i + UNROLL <= to; i += UNROLL) {
                    for (uint64_t u = 0; u < UNROLL; ++u) {
                        sum[u] += memory.get()[i + u];
                    }
                }
            }
            for (const uint64_t s : sum) {
                seen += s;
            }
        });
    }

private:
    static constexpr size_t   PAGE   = 2u << 20;
    static constexpr uint64_t UNROLL = 16;
    static constexpr int      PASSES = 4;

    struct release {
        void operator()(uint64_t * p) const { free(p); }
    };

    const uint64_t                       words;
    const int                            n_threads;
    std::unique_ptr<uint64_t[], release> memory;
    std::atomic<uint64_t>                seen{ 0 }; // what was read is used

    template <typename F> void each(const F & part) {
        const uint64_t share = words/uint64_t(n_threads)/UNROLL*UNROLL;
        std::vector<std::thread> others;
        for (int i = 1; i < n_threads; ++i) {
            others.emplace_back([&part, i, share] { part(uint64_t(i)*share, uint64_t(i + 1)*share); });
        }
        part(0, share);
        for (std::thread & t : others) {
            t.join();
        }
    }
};

} // namespace

std::unique_ptr<trial> make_copy(const timed_backend & device, uint64_t bytes, bool to_device, bool pinned) {
    return std::make_unique<copy_trial>(device, bytes, to_device, pinned);
}

std::unique_ptr<trial> make_host_read(uint64_t bytes, int n_threads) {
    return std::make_unique<read_trial>(bytes, n_threads);
}

} // namespace rkv
