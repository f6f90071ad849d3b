#pragma once

// Plain reading of memory, from one end to the other: the yardstick of what attention over it could reach.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static uint64_t test_sum_avx512(const char * from, const char * to) {
    __m512i sum[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
    for (; from + sizeof(sum) <= to; from += sizeof(sum)) {
        for (int i = 0; i < 4; ++i) {
            sum[i] = _mm512_add_epi64(sum[i], _mm512_loadu_si512(from + i*sizeof(__m512i)));
        }
    }
    uint64_t lanes[4*sizeof(__m512i)/sizeof(uint64_t)];
    memcpy(lanes, sum, sizeof(sum));
    uint64_t all = 0;
    for (const uint64_t lane : lanes) {
        all += lane;
    }
    return all;
}
#endif

static uint64_t test_sum_plain(const char * from, const char * to) {
    uint64_t sum[8] = {};
    for (; from + sizeof(sum) <= to; from += sizeof(sum)) {
        uint64_t line[8];
        memcpy(line, from, sizeof(line));
        for (int i = 0; i < 8; ++i) {
            sum[i] += line[i];
        }
    }
    uint64_t all = 0;
    for (const uint64_t lane : sum) {
        all += lane;
    }
    return all;
}

static uint64_t test_sum(const char * from, const char * to) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) {
        return test_sum_avx512(from, to);
    }
#endif
    return test_sum_plain(from, to);
}

// Seconds that reading so many bytes takes, each thread an even share.
static double test_seconds_of_reading(const void * base, size_t bytes, int n_threads) {
    std::vector<std::thread> threads;
    std::vector<uint64_t>    sums(size_t(n_threads)*8); // a cache line each
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n_threads; ++i) {
        const char * from = (const char *) base + bytes/n_threads*i;
        threads.emplace_back([=, &sums] { sums[size_t(i)*8] = test_sum(from, from + bytes/n_threads); });
    }
    for (std::thread & t : threads) {
        t.join();
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    volatile uint64_t seen = sums[0];
    (void) seen;
    return took;
}
