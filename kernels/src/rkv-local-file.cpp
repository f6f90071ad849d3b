// The file in which `rolling-kv gate budget` says which layers of a model may be local.

#include "rkv-options.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <stdexcept>

void rkv_local_file_read(rkv_option_set & o, const std::string & path) {
    std::ifstream file(path);
    if (!file) {
        throw std::invalid_argument("cannot read " + path + "; give the JSON file that `rolling-kv gate budget` wrote");
    }
    const auto json = nlohmann::json::parse(file, nullptr, /* allow_exceptions = */ false);
    try {
        const auto & found = json.at("accepted");
        if (found.is_null()) {
            throw std::invalid_argument(path + " names no layers: the gate accepted none");
        }
        rkv_params params = o.params;
        const auto layers = found.at("layers").get<std::vector<uint32_t>>();
        params.local_cells   = found.at("cells").get<uint32_t>();
        params.local_first   = found.at("first").get<uint32_t>();
        params.local_n_layer = found.at("n_layer").get<uint32_t>();
        if (layers.empty() || params.local_cells == 0) {
            throw std::invalid_argument(path + " names no layers");
        }
        o.params       = params;
        o.local_layers = layers;
        o.window_given = true;
    } catch (const nlohmann::json::exception &) {
        throw std::invalid_argument(path + " is not what `rolling-kv gate budget` writes with --json");
    }
}
