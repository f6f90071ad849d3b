#pragma once

// Carries out on the host, thread by thread, what a node gives to a CUDA stream: the bodies of the kernels, and in place of their
// barriers and of what lanes tell each other, loops. Threads of a block run in one order or in the other: nothing may depend on it.

#include "rkv-cuda-node.h"

#include <functional>

class host_queue : public rkv::node_queue {
public:
    explicit host_queue(bool backwards = false) : backwards(backwards) {}

    void tiles(const rkv::attn_tiles & a, int n_tiles) override;
    void merge(const rkv::merge_tiles & a) override;
    void copy(char * dst, size_t width, const char * src, size_t stride, size_t rows) override;
    void zero(char * dst, size_t bytes) override;
    void convert(const rkv::convert_rows & a) override;

    int n_launches = 0; // of tiles
    int n_merges   = 0;

private:
    bool backwards;
};

// Computes a tiled node whose parts the device would read where they lie.
void host_attend(ggml_tensor * node, bool backwards, rkv_fault fault = RKV_FAULT_NONE);

// A long batch's way: every row is put into one part, in the window's types, and attention is over that.
void host_attend_in_one(ggml_tensor * node);

// The same as host_attend, but the tail's tiles are the host engine's. `waits` false: its partials are taken as they are, before it began.
void host_attend_beside(ggml_tensor * node, const rkv_host_engine_api & api, rkv_host_engine * engine, bool waits);
