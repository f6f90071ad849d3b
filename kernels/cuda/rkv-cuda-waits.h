#pragma once

// How long the computing stream waits for copies, by events around its waits. A record takes the device a microsecond or two, so not every step
// is looked at: the first ones, and then one of many, which stands for those before it.

#include "rkv-cuda-vendors.h"

#include "common.cuh"

#include <algorithm>
#include <cstdint>
#include <vector>

class rkv_cuda_waits {
public:
    ~rkv_cuda_waits() {
        for (cudaEvent_t e : events) {
            CUDA_CHECK(cudaEventDestroy(e));
        }
    }

    // False when the events cannot be had. Once.
    bool make() {
        while (events.size() < 2*MOST) {
            cudaEvent_t e;
            if (cudaEventCreateWithFlags(&e, cudaEventDefault) != cudaSuccess) {
                (void) cudaGetLastError();
                return false;
            }
            events.push_back(e);
        }
        return true;
    }

    // A step of few queries begins. After a change of what is brought, steps are looked at one by one again.
    void begin(bool changed) {
        fresh   = changed ? FRESH : fresh;
        n_waits = 0;
        ++since;
        looks = !events.empty() && (fresh > 0 || since >= EVERY);
        fresh -= fresh > 0;
    }

    void before(cudaStream_t stream) {
        if (looks && n_waits < MOST) {
            CUDA_CHECK(cudaEventRecord(events[2*n_waits], stream));
        }
    }
    void after(cudaStream_t stream) {
        if (looks && n_waits < MOST) {
            CUDA_CHECK(cudaEventRecord(events[2*n_waits + 1], stream));
        }
        ++n_waits;
    }

    // Seconds that the step that began last has waited, when it was looked at and has ended; else less than 0.
    double seconds() {
        if (!looks) {
            return -1;
        }
        looks = false;
        const size_t n = std::min(n_waits, MOST);
        if (n > 0 && cudaEventQuery(events[2*n - 1]) != cudaSuccess) {
            (void) cudaGetLastError();
            return -1;
        }
        double   sum   = 0;
        uint64_t waits = 0;
        for (size_t i = 0; i < n; ++i) {
            float ms = 0;
            CUDA_CHECK(cudaEventElapsedTime(&ms, events[2*i], events[2*i + 1]));
            sum   += double(ms)*1e-3;
            waits += double(ms)*1e-3 > NOTHING;
        }
        sum      *= n > 0 ? double(n_waits)/double(n) : 0.0;
        stalls   += waits*since;
        stall_ns += uint64_t(sum*1e9)*since;
        since = 0;
        return sum;
    }

    // Of all steps, as those that were looked at tell.
    uint64_t stalls   = 0;
    uint64_t stall_ns = 0;

private:
    static constexpr size_t   MOST    = 256;  // waits of a step that are looked at; the others are taken to be like them
    static constexpr uint32_t FRESH   = 8;    // steps
    static constexpr uint32_t EVERY   = 16;   // steps
    static constexpr double   NOTHING = 5e-6; // seconds that two records take at the most

    std::vector<cudaEvent_t> events;
    size_t                   n_waits = 0;
    uint32_t                 fresh   = FRESH;
    uint64_t                 since   = 0; // steps since one was looked at
    bool                     looks   = false;
};
