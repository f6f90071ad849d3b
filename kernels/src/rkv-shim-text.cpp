#include "rkv-shim-guard.h"

#include "llama-vocab.h"

#include <algorithm>
#include <climits>
#include <string>
#include <vector>

using rkv::error_set;
using rkv::guarded;

namespace {

rkv_status too_small() {
    error_set("the buffer is too small");
    return RKV_ERR_TOO_SMALL;
}

// llama.cpp counts in int32_t and answers the needed size with a minus sign.
int32_t clamped(size_t size) {
    return (int32_t) std::min<size_t>(size, INT32_MAX);
}

rkv_status sized(int32_t n, size_t * n_out) {
    *n_out = (size_t) (n < 0 ? -(int64_t) n : n);
    return n < 0 ? too_small() : RKV_OK;
}

} // namespace

enum rkv_status rkv_vocab_tokenize(const llama_vocab * vocab, const char * text, size_t size, bool add_special, bool parse_special,
        llama_token * tokens, size_t n_tokens, size_t * n_out) {
    return guarded([&] {
        const std::vector<llama_token> found = vocab->tokenize(std::string(text, size), add_special, parse_special);
        *n_out = found.size();
        if (found.size() > n_tokens) {
            return too_small();
        }
        std::copy(found.begin(), found.end(), tokens);
        return RKV_OK;
    });
}

enum rkv_status rkv_vocab_detokenize(const llama_vocab * vocab, const llama_token * tokens, size_t n_tokens, bool remove_special,
        bool unparse_special, char * text, size_t size, size_t * n_out) {
    return guarded([&] {
        return sized(vocab->detokenize(tokens, clamped(n_tokens), text, clamped(size), remove_special, unparse_special), n_out);
    });
}

enum rkv_status rkv_vocab_piece(const llama_vocab * vocab, llama_token token, bool special, char * text, size_t size, size_t * n_out) {
    return guarded([&] {
        return sized(vocab->token_to_piece(token, text, clamped(size), 0, special), n_out);
    });
}

enum rkv_status rkv_chat_format(const char * chat_template, const llama_chat_message * messages, size_t n_messages, bool open_answer,
        char * text, size_t size, size_t * n_out) {
    return guarded([&] {
        const int32_t n = llama_chat_apply_template(chat_template, messages, n_messages, open_answer, text, clamped(size));
        if (n < 0) {
            error_set("the template is not one that llama.cpp knows");
            return RKV_ERR_UNSUPPORTED;
        }
        *n_out = (size_t) n;
        return (size_t) n > size ? too_small() : RKV_OK;
    });
}
