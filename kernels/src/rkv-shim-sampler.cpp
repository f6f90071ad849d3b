#include "rkv-shim-guard.h"

#include "llama-grammar.h"
#include "llama-vocab.h"

#include <cmath>
#include <stdexcept>
#include <string>

using rkv::error_set;
using rkv::guarded;

namespace {

const char * skip_blank(const char * text) {
    while (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n' || *text == '#') {
        if (*text == '#') {
            while (*text != '\0' && *text != '\n') {
                text++;
            }
        } else {
            text++;
        }
    }
    return text;
}

// The parser's own entry point prints the reason to stderr and drops it, so the rules are fed one by one here.
void grammar_check(const llama_vocab * vocab, const char * grammar, const char * root) {
    llama_grammar_parser parser(vocab);
    for (const char * pos = skip_blank(grammar); *pos != '\0';) {
        pos = parser.parse_rule(pos);
    }
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw std::runtime_error("rule '" + name + "' is used but not defined");
        }
    }
    if (parser.symbol_ids.find(root) == parser.symbol_ids.end()) {
        throw std::runtime_error("there is no rule '" + std::string(root) + "' to start from");
    }
}

} // namespace

enum rkv_status rkv_sampler_grammar_new(const llama_vocab * vocab, const char * grammar, const char * root, llama_sampler ** out) {
    return guarded([&] {
        grammar_check(vocab, grammar, root);
        *out = llama_sampler_init_grammar(vocab, grammar, root);
        if (*out == nullptr) {
            error_set("a rule can begin with itself (left recursion)");
            return RKV_ERR_FAILED;
        }
        return RKV_OK;
    });
}

enum rkv_status rkv_sampler_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    return guarded([&] {
        llama_sampler_apply(sampler, candidates);
        return RKV_OK;
    });
}

enum rkv_status rkv_sampler_accept(llama_sampler * sampler, llama_token token) {
    return guarded([&] {
        llama_sampler_accept(sampler, token);
        return RKV_OK;
    });
}

enum rkv_status rkv_sampler_reset(llama_sampler * sampler) {
    return guarded([&] {
        llama_sampler_reset(sampler);
        return RKV_OK;
    });
}

enum rkv_status rkv_sampler_clone(const llama_sampler * sampler, llama_sampler ** out) {
    return guarded([&] {
        *out = llama_sampler_clone(sampler);
        return *out == nullptr ? RKV_ERR_FAILED : RKV_OK;
    });
}

enum rkv_status rkv_sampler_allows(llama_sampler * sampler, llama_token token, bool * out) {
    return guarded([&] {
        llama_token_data       candidate = { token, 0.0f, 0.0f };
        llama_token_data_array only      = { &candidate, 1, -1, false };
        llama_sampler_apply(sampler, &only);
        *out = !std::isinf(candidate.logit);
        return RKV_OK;
    });
}
