#include "rkv-shift.h"
#include "rkv-report.h"
#include "rkv-shim-guard.h"

#include "llama-context.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"

#include <limits>
#include <vector>

using rkv::error_set;
using rkv::guarded;

namespace {

struct parts {
    rkv_memory_kind               kind = RKV_MEMORY_OTHER;
    std::vector<llama_kv_cache *> caches;
    llama_memory_recurrent *      states = nullptr;
};

parts parts_of(llama_memory_i * memory) {
    if (memory == nullptr) {
        return { RKV_MEMORY_NONE, {}, nullptr };
    }
    if (auto * kv = dynamic_cast<llama_kv_cache *>(memory)) {
        return { RKV_MEMORY_KV, { kv }, nullptr };
    }
    if (auto * kv = dynamic_cast<llama_kv_cache_iswa *>(memory)) {
        return { RKV_MEMORY_KV_ISWA, { kv->get_base(), kv->get_swa() }, nullptr };
    }
    if (auto * states = dynamic_cast<llama_memory_recurrent *>(memory)) {
        return { RKV_MEMORY_RECURRENT, {}, states };
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid *>(memory)) {
        return { RKV_MEMORY_HYBRID, { hybrid->get_mem_attn() }, hybrid->get_mem_recr() };
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid_iswa *>(memory)) {
        llama_kv_cache_iswa * kv = hybrid->get_mem_attn();
        return { RKV_MEMORY_HYBRID, { kv->get_base(), kv->get_swa() }, hybrid->get_mem_recr() };
    }
    return {};
}

} // namespace

enum rkv_status rkv_memory_info_get(llama_context * ctx, rkv_memory_info * out) {
    return guarded([&] {
        llama_memory_i * memory = ctx->get_memory();
        const parts      found  = parts_of(memory);
        const bool       known  = found.kind != RKV_MEMORY_OTHER && found.kind != RKV_MEMORY_NONE;

        *out            = {};
        out->kind       = found.kind;
        out->flash_attn = ctx->get_cparams().flash_attn;
        out->n_stream   = ctx->get_cparams().kv_unified ? 1 : ctx->get_cparams().n_seq_max;
        if (memory == nullptr) {
            return RKV_OK;
        }
        for (const llama_kv_cache * cache : rkv_memory_caches(memory)) {
            cache->rkv_visit([&](const rkv_layer_view & view) {
                out->local_digest = view.tail->local ? view.tail->local->digest : out->local_digest;
            });
        }
        out->can_shift = rkv_shift_refusal(memory).empty();
        out->can_divide   = known && out->can_shift;
        out->partial_copy = known && found.states == nullptr;
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_clear(llama_context * ctx) {
    return guarded([&] {
        llama_memory_clear(ctx->get_memory(), true);
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_seq_rm(llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, bool * done) {
    return guarded([&] {
        *done = llama_memory_seq_rm(ctx->get_memory(), seq, p0, p1);
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_seq_cp(llama_context * ctx, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1) {
    return guarded([&] {
        llama_memory_seq_cp(ctx->get_memory(), src, dst, p0, p1);
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_seq_keep(llama_context * ctx, llama_seq_id seq) {
    return guarded([&] {
        llama_memory_seq_keep(ctx->get_memory(), seq);
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_seq_add(llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, llama_pos delta) {
    return guarded([&] {
        llama_memory_seq_add(ctx->get_memory(), seq, p0, p1, delta);
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_seq_div(llama_context * ctx, llama_seq_id seq, llama_pos p0, llama_pos p1, int32_t divisor) {
    return guarded([&] {
        const parts found = parts_of(ctx->get_memory());
        if (found.kind == RKV_MEMORY_OTHER || found.kind == RKV_MEMORY_NONE) {
            error_set("the cells of this kind of memory are not known");
            return RKV_ERR_UNSUPPORTED;
        }
        const llama_pos end = p1 < 0 ? std::numeric_limits<llama_pos>::max() : p1;

        for (const llama_kv_cache * cache : found.caches) {
            auto & cells = const_cast<llama_kv_cells &>(cache->get_cells(seq));
            for (uint32_t i = 0; i < cells.size(); i++) {
                if (!cells.pos_in(i, p0, end) || !cells.seq_has(i, seq)) {
                    continue;
                }
                const llama_pos pos = cells.pos_get(i);
                if (pos / divisor != pos) {
                    cells.pos_add(i, pos / divisor - pos);
                }
            }
        }
        if (found.states != nullptr) {
            found.states->seq_div(seq, p0, p1, divisor);
        }
        return RKV_OK;
    });
}

enum rkv_status rkv_memory_update(llama_context * ctx) {
    return guarded(rkv::work::computes, [&] {
        ctx->synchronize();
        ctx->memory_update(false);
        return RKV_OK;
    });
}
