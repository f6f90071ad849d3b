// Whether the cells of a memory can be moved to other positions.

#include "rkv-report.h"
#include "rkv-residency-api.h"
#include "rkv-rope-node.h"
#include "rkv-shift.h"

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-model.h"

#include "ggml-cpp.h"

#include <algorithm>
#include <cstring>

namespace {

// Whether this cache spreads each head over a Hadamard matrix before it is quantised; it does so for heads of 64, 128 ..
bool spreads_k(const llama_kv_cache & cache) {
    ggml_init_params params = {};
    params.mem_size = ggml_tensor_overhead();
    params.no_alloc = true;

    ggml_context_ptr ctx(ggml_init(params));
    if (!ctx) {
        throw std::bad_alloc();
    }
    return cache.build_input_k_rot(ctx.get()) != nullptr;
}

// Stock turns rows of f32 and f16 where they lie. Of a quantised K it undoes the spreading, turns, and spreads again; it takes for
// granted that there is a spreading, and applies it to the part that RoPE turns only, which is right where that is the whole head.
std::string refusal_of_stock(const llama_kv_cache & cache) {
    const llama_model &   model   = cache.rkv_model();
    const llama_hparams & hparams = model.hparams;
    if (model.arch == LLM_ARCH_STEP35) {
        return "its layers turn different parts of a head";
    }
    for (const uint32_t il : cache.get_layer_ids()) {
        const ggml_type type = cache.get_k_storage((int32_t) il)->type;
        if (!hparams.has_rope(il) || type == GGML_TYPE_F32 || type == GGML_TYPE_F16) {
            continue;
        }
        if (!ggml_is_quantized(type)) {
            return format("K of %s cannot be turned; use f16", ggml_type_name(type));
        }
        if (hparams.n_rot(il) != hparams.n_embd_head_k(il) || !spreads_k(cache)) {
            return format("K of %s with heads of %u, of which %u channels are turned, cannot be turned; use f16", ggml_type_name(type),
                    hparams.n_embd_head_k(il), hparams.n_rot(il));
        }
    }
    return "";
}

bool has_local(const llama_kv_cache & cache) {
    bool res = false;
    cache.rkv_visit([&](const rkv_layer_view & view) { res = res || view.tail->local; });
    return res;
}

bool has_tail(const llama_kv_cache & cache, bool & tiled, bool & guarded) {
    bool tail = false;
    cache.rkv_visit([&](const rkv_layer_view & view) {
        tail    = tail || view.tail->split() || view.all_in_tail;
        tiled   = tiled || view.tail->tiled;
        guarded = guarded || view.tail->guarded;
    });
    return tail;
}

// What our own code cannot turn.
std::string refusal_of_layers(const llama_kv_cache & cache) {
    const llama_hparams & hparams = cache.rkv_model().hparams;
    if (rkv_shift_turns_nothing(cache)) {
        return "";
    }
    std::string why;
    cache.rkv_visit([&](const rkv_layer_view & view) {
        if (!hparams.has_rope(view.il) || !why.empty()) {
            return;
        }
        if (!view.tail->rope || !view.tail->rope->known) {
            why = format("how layer %u turns K by its position is not known", view.il);
        } else if (view.tail->rope->n_dims > RKV_ROPE_MAX) {
            why = format("heads of which %d channels are turned; %d are possible", view.tail->rope->n_dims, RKV_ROPE_MAX);
        }
    });
    return why;
}

} // namespace

std::string rkv_shift_refusal_of(const llama_kv_cache & cache) {
    const llama_hparams & hparams = cache.rkv_model().hparams;
    if (hparams.n_pos_per_embd() > 1) {
        return format("each token has %u positions", hparams.n_pos_per_embd());
    }

    if (has_local(cache)) {
        return "local layers keep their rows by position";
    }

    bool tiled   = false;
    bool guarded = false;
    const bool tail = has_tail(cache, tiled, guarded);
    if (tail && guarded) {
        return "some cells lie in host memory, and --kv-shift is guard";
    }
    if (!tail && !tiled) {
        return refusal_of_stock(cache);
    }
    return refusal_of_layers(cache);
}

std::string rkv_shift_refusal(const llama_memory_i * memory) {
    if (!memory) {
        return "the model keeps nothing between steps";
    }
    for (const llama_kv_cache * cache : rkv_memory_caches(memory)) {
        const std::string why = rkv_shift_refusal_of(*cache);
        if (!why.empty()) {
            return why;
        }
    }
    if (memory->get_can_shift()) {
        return "";
    }
    const bool iswa = dynamic_cast<const llama_kv_cache_iswa *>(memory) || dynamic_cast<const llama_memory_hybrid_iswa *>(memory);
    return iswa ? "the cache of the layers with a sliding window is shorter than the other one; --swa-full makes them equal"
                : "this kind of memory has cells that cannot be moved";
}

bool rkv_shift_refused(const llama_memory_i * memory, const char * call) {
    const std::string why = rkv_shift_refusal(memory);
    if (why.empty()) {
        return false;
    }
    LLAMA_LOG_ERROR("%s: positions cannot be moved: %s; nothing was changed\n", call, why.c_str());
    return true;
}

size_t rkv_shift_refusal_text(const llama_context * ctx, char * text, size_t n_text) {
    const std::string why = rkv_shift_refusal(llama_get_memory(ctx));
    if (n_text > 0) {
        const size_t n = std::min(why.size(), n_text - 1);
        memcpy(text, why.data(), n);
        text[n] = 0;
    }
    return why.size();
}
