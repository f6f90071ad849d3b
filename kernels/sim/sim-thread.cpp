#include "sim-thread.h"

#include <cstdint>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rkv_sim {

void act_promptly() {
    // Timers wake up to 50 us late by default, as much as a tile takes.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);

    // The first version of the kernel's struct sched_attr, which libc may not declare. A thread with a shorter slice goes before
    // one with a longer one when it wakes; kernels before 6.12 ignore it.
    struct attributes {
        uint32_t size;
        uint32_t policy;
        uint64_t flags;
        int32_t  nice;
        uint32_t priority;
        uint64_t runtime; // the slice, in nanoseconds
        uint64_t deadline;
        uint64_t period;
    } attr{};
    attr.size    = sizeof(attr);
    attr.nice    = getpriority(PRIO_PROCESS, 0);
    attr.runtime = 100*1000;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

} // namespace rkv_sim
