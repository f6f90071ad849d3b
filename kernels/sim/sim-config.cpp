#include "sim-config.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace rkv_sim {

namespace {

struct unit {
    const char * name;
    double       factor;
};

const std::vector<unit> BYTES = {
    { "KiB", 1024.0 }, { "MiB", 1048576.0 }, { "GiB", 1073741824.0 }, { "kB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "B", 1.0 },
};
const std::vector<unit> RATES = {
    { "GB/s", 1e9 }, { "MB/s", 1e6 }, { "GiB/s", 1073741824.0 }, { "MiB/s", 1048576.0 },
};
const std::vector<unit> TIMES = {
    { "us", 1e-6 }, { "ms", 1e-3 }, { "ns", 1e-9 }, { "s", 1.0 },
};

[[noreturn]] void wrong(const std::string & entry, const std::string & expected) {
    throw std::invalid_argument("sim device: '" + entry + "' is not understood; " + expected);
}

double quantity(const std::string & entry, const std::string & value, const std::vector<unit> & units) {
    char *       end    = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    std::string  names;
    for (const unit & u : units) {
        if (end != value.c_str() && u.name == std::string(end) && std::isfinite(number) && number >= 0) {
            return number*u.factor;
        }
        names += names.empty() ? u.name : std::string(", ") + u.name;
    }
    wrong(entry, "give a number and one of " + names);
}

uint64_t integer(const std::string & entry, const std::string & value) {
    char *         end    = nullptr;
    const uint64_t number = std::strtoull(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || value[0] == '-') {
        wrong(entry, "give a whole number");
    }
    return number;
}

void apply(config & cfg, const std::string & entry) {
    const size_t      eq    = entry.find('=');
    const std::string key   = entry.substr(0, eq);
    const std::string value = eq == std::string::npos ? "" : entry.substr(eq + 1);

    if (key == "mem") {
        cfg.mem_bytes = uint64_t(quantity(entry, value, BYTES));
    } else if (key == "link") {
        cfg.link_bytes_s = quantity(entry, value, RATES);
    } else if (key == "latency") {
        cfg.latency_s = quantity(entry, value, TIMES);
    } else if (key == "time" && (value == "reckoned" || value == "real")) {
        cfg.by_clock = value == "reckoned";
    } else if (key == "launch") {
        cfg.launch_s = quantity(entry, value, TIMES);
    } else if (key == "membw") {
        cfg.mem_bytes_s = quantity(entry, value, RATES);
    } else if (key == "hostbw") {
        cfg.host_bytes_s = quantity(entry, value, RATES);
    } else if (key == "delay") {
        cfg.delay_s = quantity(entry, value, TIMES);
    } else if (key == "seed") {
        cfg.seed = integer(entry, value);
    } else if (key == "fail") {
        cfg.fail_alloc = integer(entry, value);
    } else if (key == "devices") {
        cfg.n_device = uint32_t(integer(entry, value));
    } else if (key == "tiles" && (value == "alias" || value == "copy")) {
        cfg.alias = value == "alias";
    } else if (key == "threads") {
        cfg.n_threads = uint32_t(integer(entry, value));
    } else {
        wrong(entry, "give mem=, link=, latency=, launch=, membw=, hostbw=, delay=, seed=, fail=, devices=, threads=, time=real|reckoned or tiles=copy|alias");
    }
}

} // namespace

config parse_config(const std::string & spec) {
    config cfg;
    for (size_t at = 0; at < spec.size();) {
        const size_t comma = std::min(spec.find(',', at), spec.size());
        if (comma > at) {
            apply(cfg, spec.substr(at, comma - at));
        }
        at = comma + 1;
    }
    if (cfg.mem_bytes < (1 << 20)) {
        wrong("mem", "give at least 1MiB");
    }
    if (cfg.link_bytes_s < 1e6) {
        wrong("link", "give at least 1MB/s");
    }
    if (cfg.mem_bytes_s != 0 && cfg.mem_bytes_s < 1e6) {
        wrong("membw", "give at least 1MB/s, or 0GB/s for none");
    }
    if (cfg.host_bytes_s < 1e6) {
        wrong("hostbw", "give at least 1MB/s");
    }
    if (cfg.n_device < 1 || cfg.n_device > 8) {
        wrong("devices", "give 1 to 8");
    }
    return cfg;
}

std::string describe(const config & cfg) {
    char text[160];
    snprintf(text, sizeof(text), "simulated device: %.0f MiB, link %.3g GB/s, latency %.3g us", cfg.mem_bytes/1048576.0, cfg.link_bytes_s/1e9, cfg.latency_s*1e6);
    return text;
}

} // namespace rkv_sim
