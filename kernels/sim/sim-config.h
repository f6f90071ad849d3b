#pragma once

// What the simulated device is: "mem=512MiB,link=6.4GB/s,latency=10us,seed=7". See docs/SIM.md.

#include <cstdint>
#include <string>

namespace rkv_sim {

struct config {
    uint64_t mem_bytes      = uint64_t(4) << 30; // device memory
    double   link_bytes_s   = 16e9;              // bandwidth of the link, bytes per second
    double   latency_s      = 10e-6;             // of one transfer, seconds
    double   delay_s        = 0.0;               // longest random delay before a piece of work, seconds; 0: none
    uint64_t seed           = 0;                 // of the random delays
    uint64_t fail_alloc     = 0;                 // the n-th allocation of device or pinned memory fails, counted from 1; 0: none
    uint32_t n_device       = 1;
    bool     alias          = false;             // tiles take their time on the link but their bytes stay: see docs/SIM.md
    bool     by_clock       = false;             // the device's time is reckoned, not the time of day
    double   launch_s       = 0.0;               // reckoned cost of a node, seconds
    double   mem_bytes_s    = 0.0;               // reckoned bandwidth of device memory, bytes per second; 0: without end
    double   host_bytes_s   = 20e9;              // reckoned rate of the host engine, bytes of K and V per second
    uint32_t n_threads      = 0;                 // compute threads; 0: as many as the context asks for
};

// Reads a specification. Throws std::invalid_argument with what is wrong and what is possible.
config parse_config(const std::string & spec);

// The specification in one line, with units.
std::string describe(const config & cfg);

} // namespace rkv_sim
