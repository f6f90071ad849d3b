// What the patched CPU backend's registry answers by name.

#include "rkv-cpu.h"
#include "rkv-host-engine.h"
#include "rkv-step.h"

#include <string.h>

void * rkv_cpu_proc(const char * name) {
    if (strcmp(name, "rkv_tiled") == 0 || strcmp(name, RKV_TAIL_TYPES_PROC) == 0) {
        return (void *) rkv_cpu_proc;
    }
    if (strcmp(name, RKV_HOST_ENGINE_PROC) == 0) {
        return (void *) rkv_host_engine_functions;
    }
    return nullptr;
}
