#include "rkv-built.h"

#include "rkv-stamp.h"

const char * rkv_built_from(void) {
    return RKV_BUILD_STAMP;
}
