#pragma once

// What every function of rkv-shim.h is wrapped in.

#include "rkv-shim.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace rkv {

// A failed GGML_ASSERT. Not a std::exception, so that no handler of llama.cpp mistakes it for an ordinary error and goes on.
struct assertion {
    std::string message;
};

void error_set(const char * message);

// Whether kernels may run while the guard is up. They run on several threads that wait for each other, so that leaving
// one of them by a throw would leave the others waiting for ever: an assertion in a kernel then still ends the process.
enum class work {
    prepares,
    computes,
};

// While one of these lives, a failed assertion on this thread is thrown instead of ending the process.
class guard_scope {
  public:
    explicit guard_scope(work kind);
    ~guard_scope();

    guard_scope(const guard_scope &)             = delete;
    guard_scope & operator=(const guard_scope &) = delete;

  private:
    const bool computes_before;
};

// Whether one lives on this thread.
bool guard_is_up();

template <typename F> rkv_status guarded(work kind, F && body) noexcept {
    guard_scope scope(kind);
    try {
        return body();
    } catch (const assertion & err) {
        error_set(err.message.c_str());
        return RKV_ERR_ASSERT;
    } catch (const std::bad_alloc &) {
        error_set("an allocation failed");
        return RKV_ERR_NO_MEMORY;
    } catch (const std::exception & err) {
        error_set(err.what());
        return RKV_ERR_EXCEPTION;
    } catch (...) {
        error_set("something that is not an exception was thrown");
        return RKV_ERR_EXCEPTION;
    }
}

template <typename F> rkv_status guarded(F && body) noexcept {
    return guarded(work::prepares, std::forward<F>(body));
}

} // namespace rkv
