#pragma once

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace rkv {

// The name of the calling thread, up to 15 characters, for those who look from outside.
inline void name_thread(const char * name) {
#ifdef __linux__
    prctl(PR_SET_NAME, name, 0, 0, 0);
#else
    (void) name;
#endif
}

} // namespace rkv
