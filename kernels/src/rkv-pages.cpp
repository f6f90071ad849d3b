#include "rkv-pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

void rkv_ask_huge_pages(ggml_backend_buffer_t buffer) {
#if defined(__linux__)
    constexpr uintptr_t page = uintptr_t(2) << 20;
    if (!ggml_backend_buft_is_host(ggml_backend_buffer_get_type(buffer))) {
        return;
    }
    const uintptr_t from  = (uintptr_t) ggml_backend_buffer_get_base(buffer);
    const uintptr_t begin = (from + page - 1)/page*page;
    const uintptr_t end   = (from + ggml_backend_buffer_get_size(buffer))/page*page;
    if (end > begin) {
        madvise((void *) begin, end - begin, MADV_HUGEPAGE);
    }
#else
    (void) buffer;
#endif
}
