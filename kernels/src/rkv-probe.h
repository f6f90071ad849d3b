#pragma once

// What is measured of a machine: copies over a link, graphs on a device, and reads of the host.

#include "rkv-probe-api.h"

#include "ggml-cpp.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rkv {

// Something that can be timed again and again.
struct trial {
    virtual ~trial() = default;
    virtual void run() = 0;
    double amount = 0; // of one run
};

// A backend and its clock: its own where it reckons its time, else that of the day.
class timed_backend {
public:
    timed_backend(ggml_backend_dev_t dev, int n_threads);

    ggml_backend_t get() const { return backend.get(); }
    bool           reckons() const { return own_time; }
    double         now_s() const;
    void           settle() const { ggml_backend_synchronize(backend.get()); }

private:
    ggml_backend_ptr backend;
    bool             own_time = false;

    uint64_t own_ns() const;
};

// A copy of `bytes` between a device and host memory.
std::unique_ptr<trial> make_copy(const timed_backend & device, uint64_t bytes, bool to_device, bool pinned);

// A graph on a backend.
std::unique_ptr<trial> make_nodes(const timed_backend & on, uint64_t n_node);
std::unique_ptr<trial> make_read(const timed_backend & on, uint64_t bytes);
std::unique_ptr<trial> make_matrix(const timed_backend & on, uint64_t n_product);
std::unique_ptr<trial> make_attention(const timed_backend & on, uint64_t cells, ggml_type type);

// Reads of host memory by threads of their own.
std::unique_ptr<trial> make_host_read(uint64_t bytes, int n_threads);

} // namespace rkv
