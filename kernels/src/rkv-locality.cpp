// Where attention looks: sums of attention weights by distance, for each layer and head.

#include "rkv-locality-api.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

struct rkv_locality {
    rkv_locality_params params;
    int32_t             position = 0;
    std::vector<float>  weights;
    std::map<std::pair<int32_t, uint32_t>, rkv_head_locality> heads;
};

namespace {

constexpr const char * NODE = "kq_soft_max-";

int32_t layer_of(const ggml_tensor * t) {
    return strncmp(t->name, NODE, strlen(NODE)) == 0 ? atoi(t->name + strlen(NODE)) : -1;
}

int bin_of(int32_t distance) {
    int b = 0;
    while (distance > 0) {
        distance >>= 1;
        ++b;
    }
    return std::min(b, RKV_LOCALITY_BINS - 1);
}

// One query's weights over the cells [0, position].
void add_query(const rkv_locality_params & p, rkv_head_locality & h, const float * w, int32_t position) {
    h.queries++;
    for (int32_t cell = 0; cell <= position; ++cell) {
        const int b = bin_of(position - cell);
        h.mass[b] += w[cell];
        if (cell < p.n_first) {
            h.first[b] += w[cell];
        }
    }
    if (position >= p.asker_begin && p.needle_end > p.needle_begin) {
        h.askers++;
        for (int32_t cell = p.needle_begin; cell < p.needle_end; ++cell) {
            h.needle += w[cell];
        }
    }
}

} // namespace

struct rkv_locality * rkv_locality_new(const struct rkv_locality_params * params) {
    auto * res = new rkv_locality();
    res->params = *params;
    return res;
}

void rkv_locality_free(struct rkv_locality * locality) {
    delete locality;
}

void rkv_locality_begin(struct rkv_locality * locality, int32_t position) {
    locality->position = position;
}

// Weights: [n_kv, n_tokens, n_head, 1], f32.
bool rkv_locality_eval(struct ggml_tensor * t, bool ask, void * user) {
    auto &        locality = *(rkv_locality *) user;
    const int32_t layer    = layer_of(t);
    if (ask || layer < 0) {
        return layer >= 0;
    }
    if (t->type != GGML_TYPE_F32 || t->ne[3] != 1 || !ggml_is_contiguous(t)) {
        return true;
    }
    locality.weights.resize(ggml_nelements(t));
    ggml_backend_tensor_get(t, locality.weights.data(), 0, ggml_nbytes(t));
    for (int64_t head = 0; head < t->ne[2]; ++head) {
        auto & h = locality.heads[{ layer, uint32_t(head) }];
        h.layer = layer;
        h.head  = uint32_t(head);
        for (int64_t i = 0; i < t->ne[1]; ++i) {
            const int32_t position = locality.position + int32_t(i);
            if (position >= locality.params.first_query && position < t->ne[0]) {
                add_query(locality.params, h, &locality.weights[(head*t->ne[1] + i)*t->ne[0]], position);
            }
        }
    }
    return true;
}

size_t rkv_locality_count(const struct rkv_locality * locality) {
    return locality->heads.size();
}

void rkv_locality_get(const struct rkv_locality * locality, size_t i, struct rkv_head_locality * head) {
    auto it = locality->heads.begin();
    std::advance(it, i);
    *head = it->second;
}
