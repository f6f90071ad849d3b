#include "rkv-decode.h"

#include "rkv-shim-guard.h"

#include "llama-context.h"
#include "llama-impl.h"

#include <exception>

bool rkv_decode(llama_context & ctx, const llama_batch & batch, int32_t & answer) {
    constexpr int32_t FAILED = -2;
    if (ctx.get_cparams().rkv.tile == 0 || rkv::guard_is_up()) {
        return false;
    }
    try {
        answer = ctx.decode(batch);
    } catch (const std::exception & err) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, err.what());
        answer = FAILED;
    }
    if (answer != 0 && answer != 1) {
        LLAMA_LOG_ERROR("%s: failed to decode, ret = %d\n", __func__, answer);
    }
    return true;
}
