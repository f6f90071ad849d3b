#pragma once

// Pages of the host's memory that a cache lies in.

#include "ggml-backend.h"

// Asks the system for 2 MiB pages where the buffer's bytes can be read by the host; before they are first touched. A system that has
// none, or gives none, is as good as before: reading through 4 KiB pages was seen to take a third longer (docs/NUMBERS.md).
void rkv_ask_huge_pages(ggml_backend_buffer_t buffer);
