// Which memory is near which processors: lists as Linux writes them, nodes of a machine that is made up, and this machine's own answers.

#include "rkv-numa.h"
#include "rkv-test-check.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace rkv;

typedef std::vector<int> cpus;

static void lists() {
    check(numa_parse("0-3,8,10-11\n") == cpus{ 0, 1, 2, 3, 8, 10, 11 }, "ranges and single processors");
    check(numa_parse("5") == cpus{ 5 }, "one processor");
    check(numa_parse("\n").empty() && numa_parse("").empty(), "a node without processors");
    for (const char * broken : { "a", "1-", "3-1", "1,,2", "1;2", "-3", "0-99999999999", "1-2-3" }) {
        check(numa_parse(broken).empty(), std::string("a broken list: ") + broken);
    }
}

namespace {

// A folder as Linux shows its nodes.
struct machine {
    std::filesystem::path root;

    explicit machine(const std::string & name) : root(std::filesystem::temp_directory_path() / ("test-rkv-numa-" + name + std::to_string(std::random_device()()))) {
        std::filesystem::remove_all(root);
        std::filesystem::create_directories(root);
    }
    ~machine() {
        std::error_code ignored;
        std::filesystem::remove_all(root, ignored);
    }

    void online(const char * list) const { std::ofstream(root / "online") << list; }
    void node(int i, const char * list) const {
        const auto dir = root / ("node" + std::to_string(i));
        std::filesystem::create_directories(dir);
        std::ofstream(dir / "cpulist") << list;
    }
};

} // namespace

static void nodes() {
    const machine two("two");
    two.online("0-1\n");
    two.node(0, "0-1\n");
    two.node(1, "2-3\n");
    check(numa_nodes(two.root.string().c_str()) == std::vector<cpus>{ { 0, 1 }, { 2, 3 } }, "two nodes");

    const machine gap("gap");
    gap.online("0,2\n");
    gap.node(0, "0\n");
    gap.node(2, "1\n");
    check(numa_nodes(gap.root.string().c_str()) == std::vector<cpus>{ { 0 }, {}, { 1 } }, "a number that is missing keeps its place");

    const machine one("one");
    one.online("0\n");
    one.node(0, "0-7\n");
    check(numa_nodes(one.root.string().c_str()).empty(), "one node is nothing to choose from");

    const machine memory("memory");
    memory.online("0-1\n");
    memory.node(0, "0-7\n");
    memory.node(1, "\n");
    check(numa_nodes(memory.root.string().c_str()).empty(), "memory without processors is no place to stay at");

    check(numa_nodes("/nonexistent").empty(), "a system that does not tell");
}

static void staying() {
#ifdef __linux__
    const cpus allowed = numa_allowed();
    check(!allowed.empty(), "the processors of this process");

    std::thread([&] {
        check(numa_stay({ allowed[0] }, allowed, 1), "a thread stays at a processor");
        check(numa_allowed() == cpus{ allowed[0] }, "and is there");
        check(!numa_stay({ allowed[0] }, allowed, 2), "two threads are not put on one processor");
        check(!numa_stay({}, allowed, 1), "no processors");
        check(!numa_stay({ allowed[0] }, {}, 1), "none that the process may use");
        check(numa_allowed() == cpus{ allowed[0] }, "refused, it stays where it was");
        check(numa_stay(allowed, allowed, 1) && numa_allowed() == allowed, "and it may go anywhere again");
    }).join();
    check(numa_allowed() == allowed, "other threads go where they want");

    std::vector<char> page(1 << 16, 1);
    const int node = numa_node_of(page.data());
    check(node >= -1 && node < 1024, "the node of a page that was touched");
    check(numa_node_of(nullptr) == -1, "a page that is not there lies nowhere");
#endif
}

int main() {
    lists();
    nodes();
    staying();
    return test_closing();
}
