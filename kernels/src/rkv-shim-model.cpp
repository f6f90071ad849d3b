#include "rkv-shim-guard.h"

#include "llama-model.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "gguf.h"

#include <memory>
#include <stdexcept>
#include <string>

using rkv::error_set;
using rkv::guarded;

namespace {

using model_ptr = std::unique_ptr<llama_model, decltype(&llama_model_free)>;

[[noreturn]] void impossible(uint32_t layer, const char * what, uint32_t left, const char * relation, uint32_t right) {
    throw std::runtime_error("layer " + std::to_string(layer) + " has " + what + " " + std::to_string(left) + ", which is not " +
                             relation + " " + std::to_string(right));
}

// What the kernels assert about the shape of a model. They run on threads of their own, from which nothing can be caught.
void shape_check(const llama_hparams & hparams) {
    for (uint32_t il = 0; il < hparams.n_layer(); il++) {
        const uint32_t n_head    = hparams.n_head(il);
        const uint32_t n_head_kv = hparams.n_head_kv(il);
        if (n_head == 0 || n_head_kv == 0) {
            continue;
        }
        if (n_head % n_head_kv != 0) {
            impossible(il, "a head count of", n_head, "a multiple of its KV head count", n_head_kv);
        }
        if (hparams.rope_type == LLAMA_ROPE_TYPE_NONE || !hparams.has_rope(il)) {
            continue;
        }
        if (hparams.n_rot(il) % 2 != 0) {
            impossible(il, "a rotation of length", hparams.n_rot(il), "a multiple of", 2);
        }
        if (hparams.n_rot(il) > hparams.n_embd_head_k(il)) {
            impossible(il, "a rotation of length", hparams.n_rot(il), "at most the head length", hparams.n_embd_head_k(il));
        }
    }
}

rkv_status finish(llama_model * made, llama_model ** out) {
    model_ptr model(made, llama_model_free);
    if (!model) {
        error_set("the model could not be loaded");
        return RKV_ERR_FAILED;
    }
    if (!model->hparams.vocab_only) {
        shape_check(model->hparams);
    }
    *out = model.release();
    return RKV_OK;
}

} // namespace

enum rkv_status rkv_backends_load(const char * dir) {
    return guarded([&] {
        ggml_backend_load_all_from_path(dir);
        return RKV_OK;
    });
}

enum rkv_status rkv_model_load(const char * path, const llama_model_params * params, llama_model ** out) {
    return guarded([&] {
        return finish(llama_model_load_from_file(path, *params), out);
    });
}

enum rkv_status rkv_model_init(gguf_context * metadata, llama_model_set_tensor_data_t set_tensor, void * user_data,
        const llama_model_params * params, llama_model ** out) {
    return guarded([&] {
        return finish(llama_model_init_from_user(metadata, set_tensor, user_data, *params), out);
    });
}

enum rkv_status rkv_model_info_get(const llama_model * model, rkv_model_info * out) {
    return guarded([&] {
        const llama_hparams & hparams = model->hparams;

        out->n_pos_per_embd   = hparams.n_pos_per_embd();
        out->n_cls_out        = hparams.n_cls_out;
        out->n_positions      = model->pos_embd ? uint32_t(model->pos_embd->ne[1]) : 0;
        out->pooling          = hparams.pooling_type;
        out->causal           = hparams.causal_attn;
        out->has_output       = model->output != nullptr;
        out->has_classifier   = model->cls != nullptr || model->cls_out != nullptr;
        out->vocab_only       = hparams.vocab_only;
        out->mla              = hparams.is_mla();
        out->position_buckets = hparams.n_rel_attn_bkts > 0;
        return RKV_OK;
    });
}

enum rkv_status rkv_metadata_tensor_type_set(gguf_context * metadata, const char * name, ggml_type type) {
    return guarded([&] {
        // The loader looks only at the name and the type; the shape comes from the architecture.
        ggml_init_params params = {};
        params.mem_size = ggml_tensor_overhead();
        params.no_alloc = true;

        ggml_context_ptr ctx(ggml_init(params));
        if (!ctx) {
            throw std::bad_alloc();
        }
        ggml_tensor * tensor = ggml_new_tensor_1d(ctx.get(), type, ggml_blck_size(type));
        ggml_set_name(tensor, name);
        gguf_add_tensor(metadata, tensor);
        return RKV_OK;
    });
}
