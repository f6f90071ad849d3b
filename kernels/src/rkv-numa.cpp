#include "rkv-numa.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rkv {

// No machine has so many processors; a number beyond it is a broken list.
static constexpr long CPU_MAX = 1 << 16;

std::vector<int> numa_parse(const std::string & list) {
    std::vector<int> cpus;
    const char * p = list.c_str();
    while (*p && *p != '\n') {
        char * after;
        const long first = strtol(p, &after, 10);
        long       last  = first;
        if (after == p) {
            return {};
        }
        p = after;
        if (*p == '-') {
            last = strtol(++p, &after, 10);
            if (after == p) {
                return {};
            }
            p = after;
        }
        if (first < 0 || last < first || last >= CPU_MAX || (*p && *p != ',' && *p != '\n')) {
            return {};
        }
        for (long cpu = first; cpu <= last; ++cpu) {
            cpus.push_back((int) cpu);
        }
        p += *p == ',';
    }
    return cpus;
}

// Nodes need not be numbered without gaps; those without processors, such as memory behind a card, are kept in their place.
std::vector<std::vector<int>> numa_nodes(const char * root) {
    std::string   text;
    std::ifstream online(std::string(root) + "/online");
    std::getline(online, text);

    std::vector<std::vector<int>> nodes;
    for (const int node : numa_parse(text)) {
        std::string   list;
        std::ifstream cpus(std::string(root) + "/node" + std::to_string(node) + "/cpulist");
        std::getline(cpus, list);
        nodes.resize(node + 1);
        nodes[node] = numa_parse(list);
    }
    const auto has_cpus = [](const std::vector<int> & cpus) { return !cpus.empty(); };
    return std::count_if(nodes.begin(), nodes.end(), has_cpus) > 1 ? nodes : std::vector<std::vector<int>>();
}

int numa_node_of(const void * page) {
#if defined(__linux__) && defined(SYS_get_mempolicy)
    const unsigned long node_of_address = 1 | 2; // MPOL_F_NODE | MPOL_F_ADDR
    int node = -1;
    return syscall(SYS_get_mempolicy, &node, nullptr, 0UL, page, node_of_address) == 0 ? node : -1;
#else
    (void) page;
    return -1;
#endif
}

std::vector<int> numa_allowed() {
    std::vector<int> cpus;
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &set)) {
                cpus.push_back(cpu);
            }
        }
    }
#endif
    return cpus;
}

bool numa_stay(const std::vector<int> & node, const std::vector<int> & allowed, size_t n_threads) {
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : node) {
        if (cpu < CPU_SETSIZE && std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) {
            CPU_SET(cpu, &set);
        }
    }
    return (size_t) CPU_COUNT(&set) >= std::max<size_t>(n_threads, 1) && sched_setaffinity(0, sizeof(set), &set) == 0;
#else
    (void) node, (void) allowed, (void) n_threads;
    return false;
#endif
}

} // namespace rkv
