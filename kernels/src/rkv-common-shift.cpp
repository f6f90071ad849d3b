#include "rkv-options.h"

#include "rkv-residency-api.h"

std::string rkv_shift_note(const llama_context * ctx) {
    std::string why(rkv_shift_refusal_text(ctx, nullptr, 0) + 1, '\0');
    rkv_shift_refusal_text(ctx, &why[0], why.size());
    why.pop_back();
    return "context shift and cache reuse are off: " + why + "; a request ends when it has filled its " +
           std::to_string(llama_n_ctx_seq(ctx)) + " cells";
}
