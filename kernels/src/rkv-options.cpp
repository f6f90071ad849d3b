#include "rkv-options.h"

#include "rkv-tail-type.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace {

[[noreturn]] void bad_value(const std::string & value, const char * expected) {
    throw std::invalid_argument("'" + value + "' is not " + expected);
}

uint64_t parse_number(const std::string & value, uint64_t max, const char * expected) {
    const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!digits || value.size() > 18 || std::stoull(value) > max) {
        bad_value(value, expected);
    }
    return std::stoull(value);
}

void set_mode(rkv_option_set & o, const std::string & value) {
    if (value != "off" && value != "window") {
        bad_value(value, "off or window");
    }
    o.mode_given  = true;
    o.params.mode = value == "window" ? RKV_MODE_WINDOW : RKV_MODE_OFF;
}

void check_one_size(const rkv_option_set & o) {
    if (o.cells_given && o.params.vram_target > 0) {
        throw std::invalid_argument("--kv-window-cells and --kv-vram-target both give the window's size; give one of them, or --kv-window-cells auto");
    }
}

void set_window(rkv_option_set & o, const std::string & value) {
    o.window_given        = true;
    o.cells_given         = value != "auto";
    o.params.window_cells = o.cells_given ? int64_t(parse_number(value, INT32_MAX, "a number of cells or auto")) : RKV_WINDOW_AUTO;
    check_one_size(o);
}

void set_vram_target(rkv_option_set & o, const std::string & value) {
    o.window_given       = true;
    o.params.vram_target = parse_number(value, uint64_t(1) << 40, "a number of MiB") << 20;
    check_one_size(o);
}

// "0-4,11": layers 0 to 4 and 11, as ranges with both ends.
std::vector<std::pair<uint32_t, uint32_t>> parse_layers(const std::string & value, const char * expected) {
    std::vector<std::pair<uint32_t, uint32_t>> res;
    for (size_t pos = 0; pos <= value.size();) {
        const size_t      end   = std::min(value.find(',', pos), value.size());
        const std::string item  = value.substr(pos, end - pos);
        const size_t      dash  = item.find('-');
        const uint64_t    first = parse_number(item.substr(0, dash), 4095, expected);
        const uint64_t    last  = dash == std::string::npos ? first : parse_number(item.substr(dash + 1), 4095, expected);
        if (last < first) {
            bad_value(value, expected);
        }
        res.emplace_back(first, last);
        pos = end + 1;
    }
    return res;
}

void set_resident_layers(rkv_option_set & o, const std::string & value) {
    for (const auto & [first, last] : parse_layers(value, "a list of layers like 0-4,11")) {
        o.layer_window.resize(std::max<size_t>(o.layer_window.size(), last + 1), RKV_WINDOW_DEFAULT);
        std::fill(o.layer_window.begin() + first, o.layer_window.begin() + last + 1, RKV_WINDOW_RESIDENT);
    }
    o.window_given = true;
}

void set_local_layers(rkv_option_set & o, const std::string & value) {
    o.window_given = true;
    o.local_auto   = value == "auto";
    if (o.local_auto) {
        return;
    }
    o.local_layers.clear();
    o.params.local_n_layer = 0;
    for (const auto & [first, last] : parse_layers(value, "a list of layers like 0-4,11, or auto")) {
        for (uint32_t il = first; il <= last; ++il) {
            o.local_layers.push_back(il);
        }
    }
}

void set_local_cells(rkv_option_set & o, const std::string & value) {
    const uint64_t cells = parse_number(value, INT32_MAX/2, "a number of tokens from 1");
    if (cells == 0) {
        bad_value(value, "a number of tokens from 1");
    }
    o.params.local_cells = uint32_t(cells);
}

void set_local_first(rkv_option_set & o, const std::string & value) {
    o.params.local_first = uint32_t(parse_number(value, INT32_MAX/2, "a number of tokens"));
}

void set_order(rkv_option_set & o, const std::string & value) {
    if (value != "auto" && value != "tiled") {
        bad_value(value, "auto or tiled");
    }
    o.params.order = value == "tiled" ? RKV_ORDER_TILED : RKV_ORDER_AUTO;
}

void set_tile(rkv_option_set & o, const std::string & value) {
    const uint64_t cells = parse_number(value, RKV_TILE_MAX, "a multiple of 32, up to 8192");
    if (cells == 0 || cells % RKV_TILE_MIN != 0) {
        bad_value(value, "a multiple of 32, up to 8192");
    }
    o.params.tile_cells = uint32_t(cells);
}

void set_schedule(rkv_option_set & o, const std::string & value) {
    if (value != "ring" && value != "op") {
        bad_value(value, "ring or op");
    }
    o.params.staging.schedule = value == "op" ? RKV_SCHEDULE_OP : RKV_SCHEDULE_RING;
}

void set_depth(rkv_option_set & o, const std::string & value) {
    o.params.staging.depth = uint32_t(parse_number(value, 4096, "a number of slots up to 4096, or 0"));
}

void set_copy_cells(rkv_option_set & o, const std::string & value) {
    o.params.staging.copy_cells = uint32_t(parse_number(value, uint64_t(1) << 20, "a number of cells, or 0"));
}

void set_engine(rkv_option_set & o, const std::string & value) {
    static const std::pair<const char *, rkv_tail_engine> names[] = {
        { "auto", RKV_TAIL_ENGINE_AUTO }, { "stream", RKV_TAIL_ENGINE_STREAM }, { "host", RKV_TAIL_ENGINE_HOST }, { "hybrid", RKV_TAIL_ENGINE_HYBRID },
    };
    for (const auto & [name, engine] : names) {
        if (value == name) {
            o.params.staging.engine = engine;
            return;
        }
    }
    bad_value(value, "auto, stream, host or hybrid");
}

uint32_t tail_type(const std::string & value) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        const char * name = ggml_type_name(ggml_type(type));
        if (name && value == name && rkv_tail_type_known(ggml_type(type))) {
            return 1 + uint32_t(type);
        }
    }
    bad_value(value, "f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl");
}

void set_tail_type_k(rkv_option_set & o, const std::string & value) {
    o.params.tail_type_k = tail_type(value);
}

void set_tail_type_v(rkv_option_set & o, const std::string & value) {
    o.params.tail_type_v = tail_type(value);
}

void set_tail_threads(rkv_option_set & o, const std::string & value) {
    o.params.staging.host_threads = uint32_t(parse_number(value, 512, "a number of threads up to 512, or 0"));
}

void set_shift(rkv_option_set & o, const std::string & value) {
    if (value != "rerope" && value != "guard") {
        bad_value(value, "rerope or guard");
    }
    o.params.shift = value == "guard" ? RKV_SHIFT_GUARD : RKV_SHIFT_REROPE;
}

void set_shift_path(rkv_option_set & o, const std::string & value) {
    if (value != "auto" && value != "host" && value != "device") {
        bad_value(value, "auto, host or device");
    }
    o.params.shift_path = value == "host" ? RKV_SHIFT_PATH_HOST : value == "device" ? RKV_SHIFT_PATH_DEVICE : RKV_SHIFT_PATH_AUTO;
}

} // namespace

const std::vector<rkv_option> & rkv_option_table() {
    static const rkv_option rows[] = {
        { "--kv-residency-mode", "MODE", "LLAMA_ARG_KV_RESIDENCY_MODE",
          "where the KV cache lies: 'off' (all on the device) or 'window' (the first cells on the device, the rest in host memory; attention stays exact)\n"
          "(default: off, or window when one of the options below asks for it)", set_mode },
        { "--kv-window-cells", "N|auto", "LLAMA_ARG_KV_WINDOW_CELLS",
          "cells of each layer kept on the device, rounded down to whole tiles; 'auto' fills --kv-vram-target, or the free device memory (default: auto)", set_window },
        { "--kv-vram-target", "MIB", "LLAMA_ARG_KV_VRAM_TARGET", "device memory in MiB that the KV cache may take, with --kv-window-cells auto", set_vram_target },
        { "--kv-resident-layers", "LIST", "LLAMA_ARG_KV_RESIDENT_LAYERS", "layers kept wholly on the device, e.g. 0-4,11 (default: none)", set_resident_layers, true },
        { "--kv-order", "ORDER", "LLAMA_ARG_KV_ORDER",
          "'auto' (stock's attention while a layer fits its window) or 'tiled' (tile by tile from the first token: the same bits for every window) (default: auto)", set_order },
        { "--kv-tail-tile", "N", "LLAMA_ARG_KV_TAIL_TILE", "cells of a tile, a multiple of 32 (default: 128)", set_tile },
        { "--kv-schedule", "SCHEDULE", "LLAMA_ARG_KV_SCHEDULE",
          "when a device brings tiles to its memory: 'ring' (ahead of the layers that read them) or 'op' (once the layer has begun; to measure against) (default: ring)", set_schedule },
        { "--kv-ring-depth", "N", "LLAMA_ARG_KV_RING_DEPTH", "copies on their way or waiting on the device at a time (default: 0 = from its free memory and link)", set_depth },
        { "--kv-copy-cells", "N", "LLAMA_ARG_KV_COPY_CELLS", "cells brought to the device in one copy, rounded down to whole tiles (default: 0 = from its free memory and link)", set_copy_cells },
        { "--kv-tail-engine", "ENGINE", "LLAMA_ARG_KV_TAIL_ENGINE",
          "who attends to cells in host memory while tokens are generated: 'stream' (the device, over its link), 'host' (the CPU, where they lie), 'hybrid' (both at a time),\n"
          "or 'auto', which starts as hybrid and goes by what the steps show (default: auto)", set_engine },
        { "--kv-tail-threads", "N", "LLAMA_ARG_KV_TAIL_THREADS", "CPU threads that attend to cells in host memory (default: 0 = as many as --threads)", set_tail_threads },
        { "--kv-tail-type-k", "TYPE", "LLAMA_ARG_KV_TAIL_TYPE_K",
          "type of the keys in host memory: f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl; smaller than --cache-type-k, it halves or quarters what is read there,\n"
          "and changes results as a quantised cache does (default: the one of --cache-type-k)", set_tail_type_k },
        { "--kv-tail-type-v", "TYPE", "LLAMA_ARG_KV_TAIL_TYPE_V", "type of the values in host memory (default: the one of --cache-type-v)", set_tail_type_v },
        { "--kv-shift", "MODE", "LLAMA_ARG_KV_SHIFT",
          "context shift, self-extend and cache reuse while cells lie in host memory: 'rerope' (K is turned to its new positions in both parts) or 'guard' (they are turned off)\n"
          "(default: rerope)", set_shift },
        { "--kv-shift-path", "PATH", "LLAMA_ARG_KV_SHIFT_PATH", "who turns K in host memory: 'host', 'device' (over its link), or 'auto', which is reckoned to be faster (default: auto)", set_shift_path },
        { "--kv-local-layers", "LIST|auto", "LLAMA_ARG_KV_LOCAL_LAYERS",
          "CHANGES RESULTS: layers whose attention sees the first and the newest tokens alone, e.g. 3-9,12; they keep nothing else and have no tail.\n"
          "'auto': those of --kv-local-file (default: none)", set_local_layers, true },
        { "--kv-local-file", "FILE", "LLAMA_ARG_KV_LOCAL_FILE", "local layers that `rolling-kv gate budget` accepted for this model, with their numbers of tokens", rkv_local_file_read, true },
        { "--kv-local-cells", "N", "LLAMA_ARG_KV_LOCAL_CELLS", "newest tokens that a local layer sees (default: 1024)", set_local_cells },
        { "--kv-local-first", "N", "LLAMA_ARG_KV_LOCAL_FIRST", "tokens at the beginning that a local layer sees (default: 4)", set_local_first },
    };
    static_assert(sizeof(rows)/sizeof(rows[0]) == RKV_N_OPTION, "each option has a handler in rkv-common-args.cpp");
    static const std::vector<rkv_option> table(std::begin(rows), std::end(rows));
    return table;
}

void rkv_options_apply(const rkv_option_set & options, llama_context_params & cparams) {
    const bool window = options.mode_given ? options.params.mode == RKV_MODE_WINDOW
                                           : options.window_given || options.params.order == RKV_ORDER_TILED;
    if (!window) {
        return;
    }
    cparams.rkv      = options.params;
    cparams.rkv.mode = RKV_MODE_WINDOW;
    cparams.rkv.layer_window   = options.layer_window.data();
    cparams.rkv.n_layer_window = options.layer_window.size();
    cparams.rkv.local_layers   = options.local_layers.empty() ? nullptr : options.local_layers.data();
    cparams.rkv.n_local_layers = options.local_layers.empty() && options.local_auto ? 1 : options.local_layers.size();
}

std::string rkv_options_help() {
    std::string res;
    for (const auto & option : rkv_option_table()) {
        std::string left = std::string("  ") + option.name + " <" + option.hint + ">";
        left.resize(std::max<size_t>(left.size() + 1, 52), ' ');
        std::string help = option.help;
        std::replace(help.begin(), help.end(), '\n', ' ');
        res += left + help + "\n";
    }
    return res;
}
