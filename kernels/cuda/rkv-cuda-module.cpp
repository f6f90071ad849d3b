// What the CUDA module says of itself. It takes long to build and is copied about, so it may meet a ggml-base of another day: it then
// says so and is not used.

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "rkv-built.h"
#include "rkv-stamp.h"

#include <cstring>

// Read from the file, without loading it, by `cargo xtask cuda build` and `rolling-kv doctor`.
extern "C" {
GGML_BACKEND_API const char rkv_cuda_stamp[];
const char rkv_cuda_stamp[] = RKV_BUILD_STAMP;
}

static int rkv_cuda_score() {
    if (std::strcmp(rkv_cuda_stamp, rkv_built_from()) == 0) {
        return 1;
    }
    GGML_LOG_ERROR("%s: the CUDA module was built from %s, but ggml from %s; it is not used: build it again (cargo xtask cuda build)\n",
            __func__, rkv_cuda_stamp, rkv_built_from());
    return 0;
}

GGML_BACKEND_DL_SCORE_IMPL(rkv_cuda_score)
