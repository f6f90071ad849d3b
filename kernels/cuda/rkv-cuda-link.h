#pragma once

#include "rkv-plan.h"

// What copies to a device from pinned memory take; measured once.
rkv::link_speed rkv_cuda_link(int device);
