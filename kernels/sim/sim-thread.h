#pragma once

// What the threads of a simulated device tell the system.

#include "rkv-thread.h"

namespace rkv_sim {

using rkv::name_thread;

// The calling thread wakes when it should, as an engine of a card does: its timers are exact, and it does not wait for the time
// slice of a thread that computes. As far as the system lets it.
void act_promptly();

} // namespace rkv_sim
