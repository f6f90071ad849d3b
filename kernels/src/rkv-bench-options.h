#pragma once

// The residency options of llama-bench, whose options take lists: each value makes tests of its own.

#include "rkv-options.h"

#include <string>
#include <vector>

// When argv[i] is one of the options, takes its list of values and moves i to it. Throws std::invalid_argument.
bool rkv_bench_take(int argc, char ** argv, int & i);

// How many sets of options the lists make; at least one.
size_t rkv_bench_variants();

// Puts the set of a variant into a context's parameters.
void rkv_bench_apply(size_t variant, llama_context_params & cparams);

// What a row says of its variant; "" where nothing was asked for.
std::string rkv_bench_window(size_t variant);
std::string rkv_bench_order(size_t variant);

// Names the columns of a table for people, if any of the options was given.
void rkv_bench_columns(std::vector<std::string> & fields);

// Repeats each instance for every variant.
template <typename T> void rkv_bench_expand(std::vector<T> & instances) {
    std::vector<T> res;
    for (const auto & instance : instances) {
        for (size_t variant = 0; variant < rkv_bench_variants(); ++variant) {
            res.push_back(instance);
            res.back().rkv_variant = variant;
        }
    }
    instances = std::move(res);
}
