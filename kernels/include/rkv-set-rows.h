#pragma once

// rolling-kv: a GGML_OP_SET_ROWS node that writes into a cache of two parts.
//
// The index of a row counts the cells of the whole cache: stream*kv_size + cell. A cell below `window` goes to row
// stream*window + cell of the node (the window), another to row stream*(kv_size - window) + cell - window of the tail.
// One node, one index tensor for every layer, whatever its window: no row can go to a part that its layer does not have.

#include "ggml.h"

enum rkv_set_rows_src {
    RKV_SET_ROWS_SRC_TAIL = 3, // [n_embd, (kv_size - window)*n_stream], same type as the window
};

enum rkv_set_rows_param {
    RKV_SET_ROWS_PARAM_WINDOW  = 8, // cells of a stream in the window
    RKV_SET_ROWS_PARAM_KV_SIZE = 9, // cells of a stream in both parts
};
