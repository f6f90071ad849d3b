#include "rkv-tail-type.h"

#include "rkv-residency.h"

#include "llama-impl.h"
#include "llama-io.h"
#include "llama-model.h"

#include "ggml-backend.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

// Rows that are converted at a time.
static constexpr size_t ROWS_AT_A_TIME = 64;

static const ggml_type TYPES[] = {
    GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_1, GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL,
};

bool rkv_tail_type_known(ggml_type type) {
    return std::find(std::begin(TYPES), std::end(TYPES), type) != std::end(TYPES);
}

[[noreturn]] static void refuse(const std::string & why) {
    throw std::runtime_error("rolling-kv: " + why);
}

// Bytes of 256 elements, a multiple of every type's block.
static size_t bytes_of(ggml_type type) {
    return ggml_row_size(type, 256);
}

// `asked`: 1 + a type, or 0 for the window's.
static ggml_type resolve(uint32_t asked, ggml_type window, const char * what, const llama_model & model, uint32_t (llama_hparams::*n_embd_head)(uint32_t) const) {
    if (asked == 0) {
        return window;
    }
    const ggml_type type = ggml_type(asked - 1);
    if (!rkv_tail_type_known(type)) {
        refuse(format("the tail's %s cannot have type number %u; use f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl", what, asked - 1));
    }
    if (bytes_of(type) > bytes_of(window)) {
        refuse(format("the tail's %s is to be %s, which is larger than the window's %s; give a smaller type, or another one to the whole cache", what,
                    ggml_type_name(type), ggml_type_name(window)));
    }
    for (uint32_t il = 0; il < model.hparams.n_layer_all; ++il) {
        const uint32_t n = (model.hparams.*n_embd_head)(il);
        if (model.hparams.has_kv(il) && n % ggml_blck_size(type) != 0) {
            refuse(format("heads of layer %u have %u channels, and the tail's %s of type %s are kept by %d; use f16 or bf16", il, n, what, ggml_type_name(type),
                        (int) ggml_blck_size(type)));
        }
    }
    return type;
}

void rkv_tail_type_resolve(rkv_residency & res, const llama_model & model, const llama_context_params & cp) {
    res.tail_k = resolve(res.params.tail_type_k, cp.type_k, "keys", model, &llama_hparams::n_embd_head_k);
    res.tail_v = resolve(res.params.tail_type_v, cp.type_v, "values", model, &llama_hparams::n_embd_head_v);
    for (uint32_t il = 0; il < model.hparams.n_layer_all && (res.tail_k != cp.type_k || res.tail_v != cp.type_v); ++il) {
        ggml_backend_dev_t dev = model.dev_layer(int(il));
        if (!ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), RKV_TAIL_TYPES_PROC)) {
            refuse(format("device %s of layer %u reads window and tail in one type only; leave out the tail's types", ggml_backend_dev_name(dev), il));
        }
    }
    if (model.hparams.is_mla() && res.params.tail_type_v != 0 && res.tail_v != res.tail_k) {
        refuse(format("the model keeps values as a part of its keys; give the tail's values no type, or %s", ggml_type_name(res.tail_k)));
    }
}

// From one type to another, by way of f32.
static std::vector<uint8_t> converted(const std::vector<uint8_t> & from, ggml_type type_from, ggml_type type_to, int64_t n_row, int64_t n_col) {
    std::vector<float> floats(size_t(n_row*n_col));
    ggml_get_type_traits(type_from)->to_float(from.data(), floats.data(), n_row*n_col);
    std::vector<uint8_t> res(size_t(n_row)*ggml_row_size(type_to, n_col));
    ggml_quantize_chunk(type_to, floats.data(), res.data(), 0, n_row, n_col, nullptr);
    return res;
}

void rkv_tail_rows_write(llama_io_write_i & io, const ggml_tensor * tail, ggml_type type, size_t row, size_t n) {
    for (size_t done = 0; done < n; done += ROWS_AT_A_TIME) {
        const size_t         now = std::min(n - done, ROWS_AT_A_TIME);
        std::vector<uint8_t> own(now*tail->nb[1]);
        ggml_backend_tensor_get(tail, own.data(), (row + done)*tail->nb[1], own.size());
        const auto rows = converted(own, tail->type, type, int64_t(now), tail->ne[0]);
        io.write(rows.data(), rows.size());
    }
}

void rkv_tail_rows_read(llama_io_read_i & io, ggml_tensor * tail, ggml_type type, size_t row, size_t n) {
    for (size_t done = 0; done < n; done += ROWS_AT_A_TIME) {
        const size_t         now = std::min(n - done, ROWS_AT_A_TIME);
        std::vector<uint8_t> rows(now*ggml_row_size(type, tail->ne[0]));
        io.read(rows.data(), rows.size());
        const auto own = converted(rows, type, tail->type, int64_t(now), tail->ne[0]);
        ggml_backend_tensor_set(tail, own.data(), (row + done)*tail->nb[1], own.size());
    }
}
