#include "sim-memory.h"

#include "ggml-impl.h"

#include <cstdio>
#include <new>
#include <sys/mman.h>

namespace rkv_sim {

static size_t aligned(size_t bytes) {
    return (bytes + memory::GRANULE - 1)/memory::GRANULE*memory::GRANULE;
}

memory::memory(const config & cfg) : size(cfg.mem_bytes), fail_alloc(cfg.fail_alloc) {
    base    = (char *) mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    backing = (char *) mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || backing == MAP_FAILED) {
        throw std::bad_alloc();
    }
    madvise(backing, size, MADV_HUGEPAGE);
}

memory::~memory() {
    munmap(base, size);
    munmap(backing, size);
}

void * memory::alloc(size_t bytes) {
    const size_t wanted = aligned(bytes ? bytes : 1);
    std::lock_guard<std::mutex> lock(mutex);
    size_t at = 0;
    for (const auto & [offset, length] : taken) {
        if (offset - at >= wanted) {
            break;
        }
        at = offset + length;
    }
    if (at + wanted > size) {
        return nullptr;
    }
    taken[at] = wanted;
    log_use();
    return base + at;
}

void memory::free(void * address) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto it = taken.find(size_t((char *) address - base));
    if (it != taken.end()) {
        madvise(backing + it->first, it->second, MADV_DONTNEED);
        taken.erase(it);
        log_use();
    }
}

uint64_t memory::sum() const {
    uint64_t bytes = 0;
    for (const auto & [offset, length] : taken) {
        bytes += length;
    }
    return bytes;
}

// Read by the check of a server's memory.
void memory::log_use() const {
    GGML_LOG_DEBUG("SIM: %llu bytes of device memory in use\n", (unsigned long long) sum());
}

uint64_t memory::used() const {
    std::lock_guard<std::mutex> lock(mutex);
    return sum();
}

bool memory::fails() {
    return ++n_alloc == fail_alloc;
}

} // namespace rkv_sim
