// Adding the simulated device to a running program.

#include "rkv-shim-guard.h"

#include "ggml-backend.h"

#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>

typedef bool (*configure_t)(const char * spec, char * why, size_t n_why);

static bool is_registered() {
    return ggml_backend_reg_by_name("SIM") != nullptr;
}

enum rkv_status rkv_sim_add(const char * dir, const char * spec) {
    return rkv::guarded([&] {
        const std::string path = std::string(dir) + "/libggml-sim.so";

        const std::unique_ptr<void, int (*)(void *)> module(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
        if (!module) {
            throw std::runtime_error(std::string("the module of the simulated device cannot be loaded: ") + dlerror());
        }
        const auto configure = (configure_t) dlsym(module.get(), "rkv_sim_configure");
        if (!configure) {
            throw std::runtime_error(path + " is not a module of the simulated device");
        }
        char why[512] = {};
        if (!configure(spec, why, sizeof(why))) {
            throw std::runtime_error(why);
        }
        if (!is_registered() && !ggml_backend_load(path.c_str())) {
            throw std::runtime_error(path + " could not be registered");
        }
        return RKV_OK;
    });
}
