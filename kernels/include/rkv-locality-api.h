#pragma once

// rolling-kv: where attention looks, measured while a context computes without flash attention. Part of rkv.h.

#include "llama.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Distances are counted in bins: 0, 1, 2 to 3, 4 to 7, and so on; bin b > 0 begins at 2^(b - 1).
#define RKV_LOCALITY_BINS 24

// One head of one layer, over all queries that were counted. Masses are sums of attention weights.
struct rkv_head_locality {
    int32_t  layer;
    uint32_t head;
    uint64_t queries;
    double   mass[RKV_LOCALITY_BINS];  // by distance from the query
    double   first[RKV_LOCALITY_BINS]; // of it, on the first positions of the text
    double   needle;                   // on the needle, by the queries that ask for it
    uint64_t askers;                   // those queries
};

// What is counted.
struct rkv_locality_params {
    int32_t first_query;  // position of the first query that is counted
    int32_t n_first;      // positions that count as the first ones
    int32_t needle_begin; // positions [begin, end) of the needle; begin = end: none
    int32_t needle_end;
    int32_t asker_begin;  // queries from here on ask for it
};

struct rkv_locality;

LLAMA_API struct rkv_locality * rkv_locality_new(const struct rkv_locality_params * params);
LLAMA_API void                  rkv_locality_free(struct rkv_locality * locality);

// For llama_context_params.cb_eval, with the locality as its user data.
LLAMA_API bool rkv_locality_eval(struct ggml_tensor * t, bool ask, void * locality);

// The next step's first token has this position; the others follow. The sequence's cell i holds position i.
LLAMA_API void rkv_locality_begin(struct rkv_locality * locality, int32_t position);

// Heads that were seen, in the order of layer and head.
LLAMA_API size_t rkv_locality_count(const struct rkv_locality * locality);
LLAMA_API void   rkv_locality_get(const struct rkv_locality * locality, size_t i, struct rkv_head_locality * head);

#ifdef __cplusplus
}
#endif
