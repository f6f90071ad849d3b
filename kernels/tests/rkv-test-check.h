#pragma once

// How a test counts what holds, and says what does not.

#include <cstdio>
#include <string>

static int n_passed = 0;
static int n_failed = 0;

static inline bool check(bool ok, const std::string & what) {
    ++(ok ? n_passed : n_failed);
    if (!ok) {
        printf("FAIL %s\n", what.c_str());
    }
    return ok;
}

// The last line, and the exit code.
static inline int test_closing() {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 ? 0 : 1;
}
