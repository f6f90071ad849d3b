// Whether this processor has what the test was built for: this file is built for any.

#include "rkv-test-asks.h"

#include <cstdio>

static bool can_run() {
#if defined(RKV_ASKS_ELSEWHERE)
    return false;
#elif defined(RKV_ASKS_VNNI)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#elif defined(RKV_ASKS_AVX512)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#elif defined(RKV_ASKS_AVX2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return true;
#endif
}

int main() {
    if (!can_run()) {
        printf("SKIP: this processor has no such vectors\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    return asks_test();
}
