// Every architecture, with a tiny random model made in memory: a spilled cache gives the bits of a resident one, or the context is
// refused with a reason. The models are those of upstream's own test, whose source is included as it stands.

int upstream_test_llama_archs_main(int argc, char ** argv); // what upstream's main is called here

#define main upstream_test_llama_archs_main
#include "test-llama-archs.cpp" // NOLINT
#undef main

#include "rkv-residency-api.h"

#include <cstdlib>
#include <map>
#include <stdexcept>

namespace {

constexpr uint32_t N_TOKENS = 128;
constexpr size_t   SEED     = 1234;
constexpr float    STDEV    = 0.1f;

struct outcome {
    std::string verdict; // equal, refused, no KV, different, not engaged
    std::string detail;
};

struct evaluation {
    std::vector<float> logits;
    uint64_t           n_layers    = 0; // that hold K and V
    uint64_t           n_split     = 0; // of them with cells in host memory
    uint64_t           tiles_tail  = 0;
};

std::string g_refusal; // the last line of the log that starts with the project's name, or with an error

void keep_refusal(ggml_log_level level, const char * text, void *) {
    const char * reason = strstr(text, "rolling-kv: ");
    if (level == GGML_LOG_LEVEL_ERROR && reason) {
        g_refusal = std::string(reason + strlen("rolling-kv: "));
        while (!g_refusal.empty() && g_refusal.back() == '\n') {
            g_refusal.pop_back();
        }
    }
}

bool is_encoder(llm_arch arch) {
    return arch == LLM_ARCH_T5 || arch == LLM_ARCH_DREAM || arch == LLM_ARCH_LLADA || arch == LLM_ARCH_LLADA_MOE || arch == LLM_ARCH_RND1;
}

// `window` as the environment takes it. Throws when the context is refused.
evaluation evaluate(gguf_context * metadata, llm_arch arch, const char * window) {
    setenv("ROLLING_KV_FORCE_WINDOW", window, 1);
    setenv("ROLLING_KV_FORCE_TILE", "32", 1);

    const auto tokens = get_tokens(N_TOKENS, 128, SEED);
    auto       made   = get_model_and_ctx(metadata, nullptr, SEED, STDEV, {}, LLAMA_SPLIT_MODE_LAYER, is_encoder(arch));

    llama_set_n_threads(made.second.get(), 1, 1); // upstream's four would wait for each other on a small machine

    evaluation res;
    res.logits = get_logits(made.first.get(), made.second.get(), tokens, is_encoder(arch));

    rkv_residency_info info;
    rkv_residency_info_get(made.second.get(), &info);
    res.n_layers = info.n_layers;
    for (uint32_t i = 0; i < info.n_layers; ++i) {
        rkv_layer_residency layer;
        rkv_residency_layer_get(made.second.get(), i, &layer);
        res.n_split    += layer.host_bytes > 0;
        res.tiles_tail += layer.counters.tiles_tail;
    }
    return res;
}

outcome compare(gguf_context * metadata, llm_arch arch) {
    g_refusal.clear();
    try {
        const evaluation resident = evaluate(metadata, arch, "-2,tiled");
        const evaluation spilled  = evaluate(metadata, arch, "64,tiled");
        if (resident.n_layers == 0) {
            return { "no KV", "the model keeps no K and V" };
        }
        if (spilled.n_split == 0) {
            return { "no KV", "every layer is of a sliding-window cache, which stays resident" };
        }
        if (spilled.tiles_tail == 0) {
            return { "not engaged", "no tile was read from a tail" };
        }
        const bool equal = resident.logits.size() == spilled.logits.size() &&
                           memcmp(resident.logits.data(), spilled.logits.data(), resident.logits.size()*sizeof(float)) == 0;
        return { equal ? "equal" : "different", std::to_string(spilled.n_split) + " layers split, " + std::to_string(spilled.tiles_tail) + " tiles read" };
    } catch (const std::exception & err) {
        return { g_refusal.empty() ? "failed" : "refused", g_refusal.empty() ? err.what() : g_refusal };
    }
}

} // namespace

int main(int argc, char ** argv) {
    const std::string filter = argc > 1 ? std::string("^") + argv[1] + "$" : "";
    common_init();
    ggml_backend_load_all();
    llama_log_set(keep_refusal, nullptr);

    std::map<std::string, int> counts;
    printf("| architecture | kind | outcome | detail |\n|---|---|---|---|\n");
    for (const llm_arch & arch : llm_arch_all()) {
        const bool no_fixture = arch == LLM_ARCH_UNKNOWN || arch == LLM_ARCH_GEMMA4 || arch == LLM_ARCH_GEMMA4_ASSISTANT ||
                                arch == LLM_ARCH_EAGLE3 || arch == LLM_ARCH_DFLASH;
        if (no_fixture || !arch_supported(arch) || !arch_matches(filter, arch)) {
            continue;
        }
        for (bool moe : { false, true }) {
            if ((moe && !moe_implemented(arch)) || (!moe && moe_mandatory(arch))) {
                continue;
            }
            gguf_context_ptr metadata = get_gguf_ctx(arch, moe);
            const outcome    result   = compare(metadata.get(), arch);
            counts[result.verdict]++;
            printf("| %s | %s | %s | %s |\n", llm_arch_name(arch), moe ? "MoE" : "dense", result.verdict.c_str(), result.detail.c_str());
            fflush(stdout);
        }
    }

    int passed = 0;
    int failed = 0;
    for (const auto & [verdict, n] : counts) {
        const bool good = verdict == "equal" || verdict == "refused" || verdict == "no KV";
        (good ? passed : failed) += n;
        printf("%s%s: %d", passed + failed == n ? "\n" : ", ", verdict.c_str(), n);
    }
    printf("\n%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
