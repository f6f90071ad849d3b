#include "rkv.h"
#include "rkv-built.h"

uint32_t rkv_abi_v1(void) {
    return RKV_ABI_VERSION;
}

const char * rkv_build_stamp(void) {
    return rkv_built_from();
}
