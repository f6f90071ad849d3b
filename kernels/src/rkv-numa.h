#pragma once

// Which of the host's memory is near which of its processors. A machine with one node of memory has nothing to choose.

#include <string>
#include <vector>

namespace rkv {

// Where Linux tells of its nodes.
static constexpr const char * NUMA_ROOT = "/sys/devices/system/node";

// The processors of each node of memory; empty where the system does not tell, or has one node only.
std::vector<std::vector<int>> numa_nodes(const char * root = NUMA_ROOT);

// The node that a page lies in, which must have been touched; -1 where the system does not tell.
int numa_node_of(const void * page);

// Keeps the calling thread on those of a node's processors that `allowed` holds. False, and nothing changed, when they are fewer
// than `n_threads`: threads that share a processor lose more than far memory costs.
bool numa_stay(const std::vector<int> & node, const std::vector<int> & allowed, size_t n_threads);

// The processors that the calling thread may run on; empty where the system does not tell.
std::vector<int> numa_allowed();

// Of "0-3,8,10-11" every number; empty when it is not such a list.
std::vector<int> numa_parse(const std::string & list);

} // namespace rkv
