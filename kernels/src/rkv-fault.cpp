#include "rkv-attn-node.h"

#include <atomic>

static std::atomic<int> current_fault { RKV_FAULT_NONE };

void rkv_fault_set(enum rkv_fault fault) {
    current_fault.store(fault, std::memory_order_relaxed);
}

enum rkv_fault rkv_fault_get(void) {
    return (enum rkv_fault) current_fault.load(std::memory_order_relaxed);
}
