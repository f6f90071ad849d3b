#pragma once

// Where a row goes that is written into a cache of two parts; see rkv-set-rows.h.

#include "rkv-hd.h"

#include <stddef.h>
#include <stdint.h>

namespace rkv {

struct split_rows {
    char *  window;
    char *  tail;
    size_t  row_window; // bytes
    size_t  row_tail;   // bytes
    int64_t n_window;   // cells of a stream
    int64_t n_tail;     // cells of a stream
    bool    misplace;   // fault: the first cell of the tail goes to the window

    RKV_HD int64_t n_kv() const { return n_window + n_tail; }

    // `idx` counts the cells of the whole cache.
    RKV_HD char * row(int64_t idx) const {
        const int64_t stream = idx/n_kv();
        const int64_t at     = cell(idx);
        return at < n_window ? window + (stream*n_window + at)*row_window : tail + (stream*n_tail + at - n_window)*row_tail;
    }

    RKV_HD bool in_window(int64_t idx) const { return cell(idx) < n_window; }

    // Of its stream.
    RKV_HD int64_t cell(int64_t idx) const { return misplace && idx%n_kv() == n_window ? n_window - 1 : idx%n_kv(); }
};

} // namespace rkv
