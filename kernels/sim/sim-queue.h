#pragma once

// Threads that work in order, and counters that order them among each other.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

namespace rkv_sim {

// A counter that only grows; others wait until it has reached a value.
class timeline {
public:
    void     signal(uint64_t value);
    // Returns the nanoseconds that it waited.
    uint64_t wait(uint64_t value);
    // Waits, and returns only when the one who signalled no longer uses the timeline, so that it can be destroyed.
    void     join(uint64_t value);
    uint64_t now() const { return value.load(std::memory_order_acquire); }

private:
    std::atomic<uint64_t>   value{ 0 };
    std::mutex              mutex;
    std::condition_variable changed;
};

// Seeded random delays, one generator a queue.
class delays {
public:
    delays(uint64_t seed, double longest_s) : random(seed), longest_s(longest_s) {}
    void pause();

private:
    std::mt19937_64 random;
    double          longest_s;
};

// Runs what is pushed, in order, on a thread of its own. One that waits more than it works is `prompt`.
class queue {
public:
    queue(const char * name, bool prompt, uint64_t seed, double delay_s);
    ~queue(); // after the work that is there

    void push(std::function<void()> work);
    void drain();

    // Nanoseconds in which there was nothing to do.
    uint64_t idle_ns() const { return idle.load(); }

private:
    std::mutex                        mutex;
    std::condition_variable           changed;
    std::deque<std::function<void()>> work;
    uint64_t                          pushed = 0;
    uint64_t                          done   = 0;
    bool                              ends   = false;
    std::atomic<uint64_t>             idle{ 0 };
    delays                            delay;
    std::thread                       thread;

    void run(const char * name, bool prompt);
};

} // namespace rkv_sim
