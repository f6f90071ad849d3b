#pragma once

// What of a node goes to the host engine and comes back.

#include "rkv-host-api.h"

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

// A tensor of the same shape whose rows lie one behind the other at `data`.
ggml_tensor dense_like(const ggml_tensor * t, void * data);
size_t      dense_bytes(const ggml_tensor * t);

// Runs of a tensor's bytes, as many as needed, from where they lie to where they lie in one that is dense: each is `rows` rows of `width`
// bytes, `stride` bytes apart.
struct dense_run {
    size_t from, to; // bytes from the tensors' first ones
    size_t width, stride, rows;
};
std::vector<dense_run> dense_runs(const ggml_tensor * t);

// Bytes of K and V in each of these tiles.
std::vector<uint64_t> host_tile_bytes(const ggml_tensor * node, const std::vector<rkv_host_tile> & tiles);

// Bytes of a tile's partials, without padding.
uint64_t host_partial_bytes(const ggml_tensor * node);

} // namespace rkv
