#pragma once

// The command-line options of llama.cpp's programs that choose a residency.

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

struct rkv_option_set {
    rkv_option_set() {
        params.window_cells = RKV_WINDOW_AUTO;
        params.local_first  = RKV_LOCAL_FIRST_DEFAULT;
    }

    bool        mode_given   = false;
    bool        window_given = false; // something asks for a window
    bool        cells_given  = false; // as a number
    rkv_params  params       = {};
    std::vector<int64_t> layer_window; // [highest layer named + 1]

    bool                  local_auto = false; // the local layers are those of a file
    std::vector<uint32_t> local_layers;
};

struct rkv_option {
    const char * name; // with the leading dashes
    const char * hint; // what the value looks like
    const char * env;
    const char * help;
    void (*set)(rkv_option_set & options, const std::string & value); // throws std::invalid_argument
    bool list = false; // a value may hold commas
};

constexpr size_t RKV_N_OPTION = 19;

// Every option, in the order of the help text.
const std::vector<rkv_option> & rkv_option_table();

// Puts the options into a context's parameters. `cparams` points into `options` afterwards.
void rkv_options_apply(const rkv_option_set & options, llama_context_params & cparams);

// Reads the local layers that `rolling-kv gate budget` accepted. Throws std::invalid_argument.
void rkv_local_file_read(rkv_option_set & options, const std::string & path);

// What a program says when it turns context shift and cache reuse off.
std::string rkv_shift_note(const llama_context * ctx);

// The help lines of all options, one option a line.
std::string rkv_options_help();
