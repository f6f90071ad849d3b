#pragma once

// What the threads of a simulated device tell the system.

namespace rkv_sim {

// The name of the calling thread, up to 15 characters, for those who look from outside.
void name_thread(const char * name);

// The calling thread wakes when it should, as an engine of a card does: its timers are exact, and it does not wait for the time
// slice of a thread that computes. As far as the system lets it.
void act_promptly();

} // namespace rkv_sim
