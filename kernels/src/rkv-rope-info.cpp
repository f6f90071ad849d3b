// How a layer turns K.

#include "rkv-report.h"
#include "rkv-kv-split.h"
#include "rkv-rope-api.h"

#include "llama-context.h"
#include "llama-kv-cache.h"
#include "llama-model.h"

// As the layer's graph turns K.
static void describe(const rkv_rope_seen & seen, const llama_hparams & hparams, rkv_layer_rope & rope) {
    rope.rotated    = uint32_t(seen.n_dims);
    rope.offset     = hparams.n_lora_kv > 0 ? rope.head - rope.rotated : 0;
    rope.halves     = seen.mode != LLAMA_ROPE_TYPE_NORM;
    rope.plain      = seen.ext_factor == 0.0f && !seen.factors && seen.attn_factor == 1.0f;
    rope.freq_base  = seen.freq_base;
    rope.freq_scale = seen.freq_scale;
}

bool rkv_layer_rope_get(const llama_context * ctx, uint32_t i, struct rkv_layer_rope * rope) {
    const llama_model &   model   = ctx->get_model();
    const llama_hparams & hparams = model.hparams;
    const llama_cparams & cparams = ctx->get_cparams();

    bool     found = false;
    uint32_t entry = 0;
    for (const llama_kv_cache * cache : rkv_memory_caches(llama_get_memory(ctx))) {
        cache->rkv_visit([&](const rkv_layer_view & view) {
            const int il = int(view.il);
            if (entry++ != i || !hparams.has_rope(il) || hparams.rope_type == LLAMA_ROPE_TYPE_NONE) {
                return;
            }
            rope->head       = hparams.n_embd_head_k(il);
            if (view.tail->rope && view.tail->rope->known) {
                describe(*view.tail->rope, hparams, *rope);
                found = true;
                return;
            }
            rope->rotated    = hparams.n_rot(il);
            rope->offset     = hparams.n_lora_kv > 0 ? rope->head - rope->rotated : 0;
            rope->halves     = hparams.rope_type != LLAMA_ROPE_TYPE_NORM;
            rope->plain      = cparams.yarn_ext_factor == 0.0f && !model.get_rope_factors(cparams, il) && cparams.yarn_attn_factor == 1.0f;
            rope->freq_base  = model.get_rope_freq_base(cparams, il);
            rope->freq_scale = model.get_rope_freq_scale(cparams, il);
            found = true;
        });
    }
    return found;
}
