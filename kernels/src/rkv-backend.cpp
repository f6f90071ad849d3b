#include "rkv-backend.h"

#include "rkv-attn-node.h"
#include "rkv-set-rows.h"

bool rkv_dev_is_tiled(ggml_backend_dev_t dev) {
    ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    return reg && ggml_backend_reg_get_proc_address(reg, RKV_TILED_PROC) != nullptr;
}

bool rkv_dev_accepts(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    const bool tiled = op->op == GGML_OP_FLASH_ATTN_EXT && op->op_params[RKV_OP_PARAM_TILE] != 0;
    const bool split = op->op == GGML_OP_SET_ROWS && op->src[RKV_SET_ROWS_SRC_TAIL] != nullptr;
    return !(tiled || split) || rkv_dev_is_tiled(dev);
}
