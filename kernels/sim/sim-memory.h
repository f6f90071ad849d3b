#pragma once

// The device's memory: addresses that the host cannot read, and behind them the bytes that the device computes with.

#include "sim-config.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace rkv_sim {

// An address of the device lies in a reserved range without access, so a stray host access faults at once. The bytes lie
// elsewhere, at a fixed distance.
class memory {
public:
    explicit memory(const config & cfg);
    ~memory();

    // First fit. Returns a device address, or NULL when no run of free bytes is long enough.
    void * alloc(size_t bytes);
    void   free(void * address);

    uint64_t total() const { return size; }
    uint64_t used() const;

    bool   holds(const void * address) const { return (const char *) address >= base && (const char *) address < base + size; }
    void * bytes_of(const void * address) const { return backing + ((const char *) address - base); }

    // Whether the next allocation is the one that must fail; counts it.
    bool fails();

    static constexpr size_t ALIGNMENT = 256;  // of a tensor
    static constexpr size_t GRANULE   = 4096; // of an allocation: a page, so that freed pages can be given back

private:
    size_t                   size;
    char *                   base;
    char *                   backing;
    uint64_t                 fail_alloc;
    std::atomic<uint64_t>    n_alloc{ 0 };
    mutable std::mutex       mutex;
    std::map<size_t, size_t> taken; // offset, bytes

    // With the mutex held.
    uint64_t sum() const;
    void     log_use() const;
};

} // namespace rkv_sim
