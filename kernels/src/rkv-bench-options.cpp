#include "rkv-bench-options.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace {

struct variant_t {
    rkv_option_set options;
    std::string    window; // as given
    std::string    order;
};

std::vector<variant_t> g_variants = { {} };
bool                   g_given    = false;

std::vector<std::string> split(const std::string & list) {
    std::vector<std::string> res;
    for (size_t pos = 0; pos <= list.size();) {
        const size_t end = std::min(list.find(',', pos), list.size());
        res.push_back(list.substr(pos, end - pos));
        pos = end + 1;
    }
    return res;
}

} // namespace

bool rkv_bench_take(int argc, char ** argv, int & i) {
    for (const auto & option : rkv_option_table()) {
        if (strcmp(argv[i], option.name) != 0) {
            continue;
        }
        if (i + 1 >= argc) {
            throw std::invalid_argument(std::string(option.name) + " needs a value: " + option.hint);
        }
        const std::string name   = argv[i];
        const std::string value  = argv[++i];
        const auto        values = option.list ? std::vector<std::string>{ value } : split(value);

        std::vector<variant_t> res;
        for (const auto & variant : g_variants) {
            for (const auto & one : values) {
                res.push_back(variant);
                option.set(res.back().options, one);
                if (name == "--kv-window-cells") { res.back().window = one; }
                if (name == "--kv-order")        { res.back().order  = one; }
            }
        }
        g_variants = std::move(res);
        g_given    = true;
        return true;
    }
    return false;
}

size_t rkv_bench_variants() {
    return g_variants.size();
}

void rkv_bench_apply(size_t variant, llama_context_params & cparams) {
    rkv_options_apply(g_variants.at(variant).options, cparams);
}

std::string rkv_bench_window(size_t variant) {
    return g_variants.at(variant).window;
}

std::string rkv_bench_order(size_t variant) {
    return g_variants.at(variant).order;
}

void rkv_bench_columns(std::vector<std::string> & fields) {
    if (g_given) {
        fields.push_back("kv_window");
        fields.push_back("kv_order");
    }
}
