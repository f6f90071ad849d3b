#pragma once

// Put before every file of the kernel that test-rkv-asks is made of: what is asked for ahead is noted.

int asks_test(); // built for one width of vectors; the exit code

void rkv_asked(const void * line);

#define RKV_PREFETCH_LINE(p) rkv_asked(p)
