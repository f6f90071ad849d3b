#pragma once

// The residency options as llama.cpp's common argument parser takes them.

#include <vector>

struct common_arg;

std::vector<common_arg> rkv_common_args();
