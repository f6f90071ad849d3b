#include "rkv-shim-guard.h"

#include "rkv-planner-api.h"
#include "rkv-probe-api.h"

#include <cstdio>
#include <cstring>

namespace {

thread_local int         guard_depth    = 0;
thread_local bool        guard_computes = false;
thread_local std::string error_text;

// The files of backends lie one folder deeper (ggml/src/ggml-cpu/ops.cpp) than those of ggml itself.
bool is_from_backend(const char * message) {
    const char * path = std::strstr(message, "ggml/src/");
    if (path == nullptr) {
        return false;
    }
    path += std::strlen("ggml/src/");
    const size_t n_path = std::strcspn(path, ":");
    return std::memchr(path, '/', n_path) != nullptr;
}

void on_abort(const char * message) {
    if (guard_depth > 0 && !(guard_computes && is_from_backend(message))) {
        throw rkv::assertion{ message };
    }
    // ggml leaves the printing to this callback, and ends the process when it returns.
    std::fprintf(stderr, "%s\n", message);
}

} // namespace

namespace rkv {

void error_set(const char * message) {
    try {
        error_text = message;
    } catch (...) {
        error_text.clear();
    }
}

guard_scope::guard_scope(work kind) : computes_before(guard_computes) {
    guard_depth++;
    guard_computes = guard_computes || kind == work::computes;
}

bool guard_is_up() {
    return guard_depth > 0;
}

guard_scope::~guard_scope() {
    guard_depth--;
    guard_computes = computes_before;
}

} // namespace rkv

const char * rkv_error_last(void) {
    return error_text.c_str();
}

void rkv_guard_install(void) {
    ggml_set_abort_callback(on_abort);
}

uint64_t rkv_layout_digest(void) {
    const size_t sizes[] = {
        sizeof(llama_model_params),      sizeof(llama_context_params), sizeof(llama_batch),
        sizeof(llama_token_data),        sizeof(llama_token_data_array), sizeof(llama_chat_message),
        sizeof(llama_perf_context_data), sizeof(rkv_model_info),       sizeof(rkv_kv_mismatch),
        sizeof(rkv_context_need),        sizeof(rkv_breakdown_row),    sizeof(rkv_memory_info),
        sizeof(rkv_layer_residency),     sizeof(rkv_residency_info),   sizeof(rkv_staging_totals),
        sizeof(rkv_link_totals),         sizeof(rkv_params),           sizeof(rkv_rates),
        sizeof(rkv_plan_layer),          sizeof(rkv_plan_model),       sizeof(rkv_plan_ask),
        sizeof(rkv_plan_result),         sizeof(rkv_engine_rates),     sizeof(rkv_engine_choice),
        sizeof(rkv_probe_run),
    };
    uint64_t digest = 0;
    for (const size_t size : sizes) {
        digest = digest * 4099 + size;
    }
    return digest;
}
