#pragma once

// Carries out the copies of a ring: in the time of day, on threads of its own, or in a time that is only reckoned.

#include "sim-clock.h"
#include "sim-device.h"

#include "rkv-ring.h"

#include <cstdint>
#include <memory>

namespace rkv_sim {

// One copy and where it goes.
struct carried {
    rkv::ring_copy copy;
    char *         slot;
    size_t         v_offset; // of V's rows in the slot
};

class carrier {
public:
    virtual ~carrier() = default; // after every copy that was given

    // On the thread that submits a step, in order.
    virtual void give(const carried & c) = 0;

    // On the compute thread: so many attention nodes have begun, and so many tiles were given back, since the ring was made.
    virtual void begun(uint64_t nodes)    = 0;
    virtual void released(uint64_t tiles) = 0;

    // The device itself has read so many bytes of host memory over the link.
    virtual void shared(uint64_t) {}

    // On the threads that compute: waits until the tile is there. Returns the nanoseconds that it took.
    virtual uint64_t wait(const rkv::ring_use & use) = 0;
};

// Two lanes on threads of their own, with the device's random delays, and its link.
std::unique_ptr<carrier> carry_in_time(device & d, uint64_t seed);

// No thread: whenever the compute thread waits, the link's work up to then is reckoned with.
std::unique_ptr<carrier> carry_by_clock(device & d, device_clock & clock);

// The rows of a copy, packed into its slot.
void pack(const device & d, const carried & c);

} // namespace rkv_sim
